package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/settings"
)

// loadConfig reads the file of --config, once, and sets what it has unless flags or
// environment variables have. complete reports what is wrong with it. A file without a
// configuration has node pools alone, which are read elsewhere.
func (o *options) loadConfig() {
	if o.configLoaded || o.configFile == "" {
		return
	}
	data, err := os.ReadFile(o.configFile)
	if err != nil {
		o.poolsFile = o.configFile // as it may have some
		o.configLoaded, o.configMistakes = true, []error{fmt.Errorf("--config cannot be read: %w", err)}
		return
	}
	o.applyConfig(data)
}

// applyConfig is loadConfig with the content of the file.
func (o *options) applyConfig(data []byte) {
	o.configLoaded, o.configContent = true, string(data)
	file := o.settings.Parse(o.configFile, data, nodepools.Kind)
	if file == nil {
		o.poolsFile = o.configFile
		return
	}
	if file.Other(nodepools.Kind) != nil {
		o.poolsFile = o.configFile
	}
	o.configuration = data
	for _, mistake := range o.settings.Apply(file) {
		o.configMistakes = append(o.configMistakes, mistake)
	}
}

// poolsIn returns the document with node pools of a file with a configuration, and any other
// file as it is.
func poolsIn(data []byte) ([]byte, error) {
	file := (&settings.Table{Kind: configurationKind}).Parse("", data, nodepools.Kind)
	if file == nil {
		return data, nil
	}
	pools := file.Other(nodepools.Kind)
	if pools == nil {
		return nil, fmt.Errorf("there is no %s in it any more: write one without pools, or restart", nodepools.Kind)
	}
	return pools, nil
}

// configOfProvider returns the provider's configuration, if there is one. Its file is read once,
// so that a process which stands by uses what was checked when it started, and not what has
// since become of the file.
func (o *options) configOfProvider() ([]byte, error) {
	if o.providerConfig == "" {
		return o.providerInline, nil
	}
	if o.providerRead != nil {
		return o.providerRead, nil
	}
	content, err := readProviderConfig(o.providerConfig)
	o.providerRead = content
	return content, err
}

// absolute returns a path that does not depend on the working directory, if it can.
func absolute(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}
