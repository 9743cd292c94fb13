package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/nodepools"
)

// poolFile is the file of --config, with the provider configurations that it
// names.
type poolFile struct {
	options nodepools.Options
}

func newPoolFile(o *options) *poolFile {
	p := &poolFile{options: nodepools.Options{
		File:        o.poolsFile,
		Providers:   map[string]nodepools.Provider{},
		OS:          o.os,
		Provider:    o.provider,
		Taints:      o.taints,
		PortPerNode: o.portPerNode,
	}}
	for name, entry := range providers {
		p.options.Providers[name] = nodepools.Provider{OneNode: entry.oneNode, Check: entry.check}
	}
	if o.providerConfig != "" {
		p.options.Config = o.providerConfig
		if path, err := filepath.Abs(o.providerConfig); err == nil {
			p.options.Config = path // and not from the file's directory on
		}
	}
	return p
}

// poolRights returns what the file says as far as rights depend on it. The
// providers' configurations, which may not be here, are not looked at.
func poolRights(file, provider string) (*nodepools.Wanted, error) {
	p := newPoolFile(&options{poolsFile: file, provider: provider, portPerNode: true})
	p.options.ReadFile = func(string) ([]byte, error) { return nil, nil }
	for name, known := range p.options.Providers {
		known.Check = func([]byte) error { return nil }
		p.options.Providers[name] = known
	}
	wanted, _, err := p.load(nil)
	return wanted, err
}

// load returns what the file wants, and what it and those that it names hold. Of
// those that are known nothing is read. Beside an error there may be what those pools
// want with which nothing is wrong.
func (p *poolFile) load(known contents) (*nodepools.Wanted, contents, error) {
	all := contents{}
	read := func(path string) ([]byte, error) {
		c, ok := known[path]
		if !ok {
			c = readContent(path)
		}
		all[path] = c
		return c.bytes()
	}
	data, err := read(p.options.File)
	if err != nil {
		return nil, all, fmt.Errorf("--config cannot be read: %w", err)
	}
	options := p.options
	if options.ReadFile == nil {
		options.ReadFile = func(path string) ([]byte, error) {
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(options.File), path)
			}
			return read(path)
		}
	}
	wanted, err := nodepools.Parse(data, options)
	return wanted, all, err
}

// contents are what files hold, by path. It tells of changes where a look at the
// files themselves does not: those of a mounted ConfigMap are swapped by a link
// that is not theirs.
type contents map[string]content

// content is what a file holds, or why it cannot be read.
type content struct{ data, failure string }

func readContent(path string) content {
	data, err := os.ReadFile(path)
	if err != nil {
		return content{failure: err.Error()}
	}
	return content{data: string(data)}
}

func (c content) bytes() ([]byte, error) {
	if c.failure != "" {
		return nil, errors.New(c.failure)
	}
	return []byte(c.data), nil
}

// again reads the same files.
func (c contents) again() contents {
	now := contents{}
	for path := range c {
		now[path] = readContent(path)
	}
	return now
}
