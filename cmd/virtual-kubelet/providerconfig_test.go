//go:build !chosen_providers

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/aci"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate"
	"github.com/virtual-kubelet/virtual-kubelet/providers/huaweicci"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm"
	"github.com/virtual-kubelet/virtual-kubelet/providers/stackpath"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun"
)

// What "providers NAME" shows as a configuration is one: users copy it.
func TestConfigurationsThatAreShown(t *testing.T) {
	t.Parallel()
	for name, entry := range providers {
		var samples []string
		within := false
		for line := range strings.Lines(entry.config) {
			text, is := strings.CutPrefix(line, "  ")
			if is && !within {
				samples = append(samples, "")
			}
			if within = is; is {
				samples[len(samples)-1] += text
			}
		}
		if len(samples) == 0 {
			t.Errorf("providers %s shows no configuration", name)
		}
		for _, sample := range samples {
			if err := entry.check([]byte(sample)); err != nil {
				t.Errorf("providers %s: %v:\n%s", name, err, sample)
			}
		}
		if err := entry.check([]byte("noSuchSetting: 1\n")); err == nil {
			t.Errorf("the check of a configuration of %s takes a setting that there is not", name)
		}
	}
}

// Each setting of a cloud is in the README of its provider.
func TestSettingsAreInREADMEs(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]any{
		"aci": aci.Config{}, "azurebatch": azurebatch.Config{}, "eci": eci.Config{}, "fargate": fargate.Config{}, "huaweicci": huaweicci.Config{},
		"nomad": nomad.Config{}, "slurm": slurm.Config{}, "stackpath": stackpath.Config{}, "zun": zun.Config{},
	} {
		readme, err := os.ReadFile(filepath.Join("../../providers", name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		page := strings.ToLower(string(readme))
		for _, setting := range settingsOf(reflect.TypeOf(config), reflect.TypeOf(config).PkgPath()) {
			if !strings.Contains(page, "`"+strings.ToLower(setting)+"`") {
				t.Errorf("the README of %s lacks setting %s", name, setting)
			}
		}
	}
}

// settingsOf returns the names of the fields of a configuration, and of those in them that are of its
// package.
func settingsOf(of reflect.Type, in string) (names []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of.PkgPath() != in {
		return nil
	}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		names = append(append(names, name), settingsOf(field.Type, in)...)
	}
	return names
}
