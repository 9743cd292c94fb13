package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
)

// File is a file with node pools, and the provider configurations that it names.
type File struct {
	options nodepools.Options
	pools   func(content []byte) ([]byte, error)
}

// NewFile returns the file options.File. A nil options.ReadFile reads provider
// configurations from files, whose paths are relative to the directory of that file. Pools
// returns the part of the file's content that has the pools; nil means that all of it does.
func NewFile(options nodepools.Options, pools func(content []byte) ([]byte, error)) *File {
	return &File{options, pools}
}

// Load returns what the file wants. If only some pools are wrong, it returns an error and
// what the others want.
func (f *File) Load() (*nodepools.Wanted, error) {
	wanted, _, err := f.load(nil)
	return wanted, err
}

// load is Load, and returns the contents of all files, too. Files whose contents are
// known are not read.
func (f *File) load(known contents) (*nodepools.Wanted, contents, error) {
	all := contents{}
	read := func(path string) ([]byte, error) {
		c, ok := known[path]
		if !ok {
			c = readContent(path)
		}
		all[path] = c
		return c.bytes()
	}
	data, err := read(f.options.File)
	if err != nil {
		return nil, all, fmt.Errorf("--config cannot be read: %w", err)
	}
	if f.pools != nil {
		if data, err = f.pools(data); err != nil {
			return nil, all, fmt.Errorf("%s: %w", f.options.File, err)
		}
	}
	options := f.options
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

// contents are the contents of files, by path. Comparing them finds changes that the
// attributes of the files do not show: the files of a mounted ConfigMap are replaced by
// changing a link to their directory.
type contents map[string]content

// content is the content of a file, or why it cannot be read.
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
