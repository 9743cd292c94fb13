//go:build integration

package chart

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata/golden, and the chart's copies of files of deploy/")

const (
	bin       = "../../bin" // where the Makefile puts the binaries
	chartDir  = "../../charts/virtual-kubelet"
	namespace = "vk" // of releases
	release   = "edge"
)

// helms are the versions of Helm.
var helms = []string{"helm3", "helm4"}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a program of bin to its end.
func run(t *testing.T, program string, args ...string) (stdout string, err error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(bin, program))
	must(t, err)
	cmd := exec.CommandContext(t.Context(), path, args...)
	home := t.TempDir() // of the user there is nothing to be read
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	} else if err != nil {
		return out.String(), errors.New(errs.String() + out.String())
	}
	return out.String(), nil
}

// writeValues writes values into a file.
func writeValues(t *testing.T, values string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(file, []byte(values), 0o600))
	return file
}

// objects are those that helm template prints, by kind, namespace and name.
type objects map[string]map[string]any

// template renders the chart.
func template(t *testing.T, helm, namespace, values string) (objects, error) {
	t.Helper()
	out, err := run(t, helm, "template", release, chartDir, "--namespace", namespace, "--values", writeValues(t, values))
	if err != nil {
		return nil, err
	}
	return parse(t, out), nil
}

// parse reads a stream of YAML.
func parse(t *testing.T, text string) objects {
	t.Helper()
	all := objects{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object) == 0 {
			continue
		}
		metadata := object["metadata"].(map[string]any)
		key := fmt.Sprint(object["kind"], " ", metadata["namespace"], "/", metadata["name"])
		if all[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		all[key] = object
	}
	return all
}

// as converts an object into one of its Go type, which has to know all fields.
func as[T any](t *testing.T, object map[string]any) (typed T) {
	t.Helper()
	text, err := yaml.Marshal(object)
	must(t, err)
	if err := yaml.UnmarshalStrict(text, &typed); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return typed
}
