// Package scaffold writes the repository of a new provider.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// The names of the files end in .txt, since go build leaves a directory with a go.mod out.
//
//go:embed pod
var templates embed.FS

// Options are what a repository is made of.
type Options struct {
	// Name is that of the provider, its program and its node: a DNS label.
	Name string
	// Module is the path of the Go module, Version the version of the library that it
	// requires.
	Module, Version string
	// Replace is a checkout that the module has in place of that version; empty for none.
	Replace string
	// RBAC has the manifests of the rights that the node needs.
	RBAC []byte
}

// places are where files go whose names cannot be those of the templates.
var places = map[string]string{"gitignore": ".gitignore", "workflows/ci.yaml": ".github/workflows/ci.yaml"}

// Write makes the repository in dir, which must not exist, or be empty, and returns the names of
// its files. If it fails, what it has written stays.
func Write(dir string, o Options) (files []string, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty: give --directory one that is, or that does not exist", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	write := func(name string, content []byte) error {
		files = append(files, name)
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- a repository is for all to read
			return err
		}
		return os.WriteFile(path, content, 0o644) // #nosec G306 -- as above
	}
	values := strings.NewReplacer("{{name}}", o.Name, "{{module}}", o.Module, "{{version}}", o.Version)
	err = fs.WalkDir(templates, "pod", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := templates.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "pod/"), ".txt")
		if place, ok := places[name]; ok {
			name = place
		}
		text := values.Replace(string(content))
		if name == "go.mod" && o.Replace != "" {
			text += fmt.Sprintf("\nreplace github.com/virtual-kubelet/virtual-kubelet => %s\n", o.Replace)
		}
		return write(name, []byte(text))
	})
	if err != nil {
		return files, err
	}
	if o.Replace != "" { // what it has verified need not be verified again
		sums, err := os.ReadFile(filepath.Join(o.Replace, "go.sum"))
		if err != nil {
			return files, err
		}
		if err := write("go.sum", sums); err != nil {
			return files, err
		}
	}
	return files, write("deploy/rbac.yaml", o.RBAC)
}

// release is a version that a module can require: not what Go calls a binary of a checkout, which is a
// pseudo-version such as v0.0.0-20261124030405-0123456789ab, with +dirty where there are changes.
var release = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.?[0-9]+)?$`)

// Check names all mistakes.
func (o *Options) Check() error {
	var mistakes []error
	if problems := validation.IsDNS1123Label(o.Name); len(problems) > 0 {
		mistakes = append(mistakes, fmt.Errorf("%q cannot be the name of a provider: %s", o.Name, strings.Join(problems, "; ")))
	}
	if o.Module == "" || strings.ContainsAny(o.Module, " \t\n\"'`") {
		mistakes = append(mistakes, fmt.Errorf("%q cannot be the path of a module: give --module one like example.org/%s", o.Module, o.Name))
	}
	if o.Replace == "" {
		if !release.MatchString(o.Version) {
			mistakes = append(mistakes, fmt.Errorf("this binary is no release but of version %q: give --replace the directory of a clone of Virtual Kubelet", o.Version))
		}
	} else if mod, err := os.ReadFile(filepath.Join(o.Replace, "go.mod")); err != nil || !strings.HasPrefix(string(mod), "module github.com/virtual-kubelet/virtual-kubelet\n") {
		mistakes = append(mistakes, fmt.Errorf("%s is no clone of Virtual Kubelet: there is no go.mod of its module in it", o.Replace))
	}
	return config.Join(mistakes...)
}
