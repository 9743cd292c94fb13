// Package scaffold writes the repository of a new provider.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// The names of the files end in .txt, since go build leaves a directory with a go.mod out. They
// are in the language of text/template, of which they have calls of Options.functions and if, between
// [[ and ]].
//
//go:embed shared pod podgroup podengine remote
var templates embed.FS

// kinds are what a provider can be built on, each with the directories of its files. A file takes
// the place of one of that name in a directory before it.
var kinds = map[string][]string{
	"pod":       {"shared", "pod"},
	"podgroup":  {"shared", "podgroup"},
	"podengine": {"shared", "podengine"},
	"remote":    {"shared", "pod", "remote"},
}

// Kinds are the names of what a provider can be built on (docs/choose.md).
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// Options are what a repository is made of.
type Options struct {
	// Name is that of the provider, its program and its node: a DNS label.
	Name string
	// Kind is what the provider is built on: one of Kinds.
	Kind string
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
	contents, err := o.contents()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		files = append(files, name)
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- a repository is for all to read
			return files, err
		}
		if err := os.WriteFile(path, contents[name], 0o644); err != nil { // #nosec G306 -- as above
			return files, err
		}
	}
	return files, nil
}

// contents are the files, by name.
func (o *Options) contents() (map[string][]byte, error) {
	contents := map[string][]byte{"deploy/rbac.yaml": o.RBAC}
	for _, layer := range kinds[o.Kind] {
		err := fs.WalkDir(templates, layer, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name := strings.TrimSuffix(strings.TrimPrefix(path, layer+"/"), ".txt")
			if place, ok := places[name]; ok {
				name = place
			}
			contents[name], err = o.execute(path)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if o.Replace != "" { // what it has verified need not be verified again
		sums, err := os.ReadFile(filepath.Join(o.Replace, "go.sum"))
		if err != nil {
			return nil, err
		}
		contents["go.sum"] = sums
	}
	return contents, nil
}

// execute executes a template. It parses with text/template, but does not execute with it: that
// calls methods by their names, for which the linker would keep all methods of everything in the
// binary (make build).
func (o *Options) execute(path string) ([]byte, error) {
	text, err := templates.ReadFile(path)
	if err != nil {
		return nil, err
	}
	functions := o.functions()
	names := map[string]any{}
	for name := range functions {
		names[name] = true
	}
	parsed, err := parse.Parse(path, string(text), "[[", "]]", names)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, tree := range parsed {
		if err := functions.execute(&out, tree.Root); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return out.Bytes(), nil
}

// functions are what a template can call. What is empty is false.
type functions map[string]func(args []string) (string, error)

// execute writes what a part of a template makes: text, calls, and if with else.
func (f functions) execute(out *bytes.Buffer, part parse.Node) error {
	switch part := part.(type) {
	case *parse.ListNode:
		for _, node := range part.Nodes {
			if err := f.execute(out, node); err != nil {
				return err
			}
		}
		return nil
	case *parse.TextNode:
		out.Write(part.Text)
		return nil
	case *parse.ActionNode:
		text, err := f.call(part.Pipe)
		out.WriteString(text)
		return err
	case *parse.IfNode:
		condition, err := f.call(part.Pipe)
		if err != nil || condition == "" && part.ElseList == nil {
			return err
		}
		if condition == "" {
			return f.execute(out, part.ElseList)
		}
		return f.execute(out, part.List)
	}
	return fmt.Errorf("the template has %s, which is neither a call nor if", part)
}

// call calls the one function of a pipeline, with words for arguments.
func (f functions) call(pipe *parse.PipeNode) (string, error) {
	words := strings.Fields(pipe.String())
	call := f[words[0]]
	if call == nil {
		return "", fmt.Errorf("the template has %s, which is no call", pipe)
	}
	for i, word := range words {
		words[i] = strings.Trim(word, `"`)
	}
	return call(words[1:])
}

// functions are those of the templates.
func (o *Options) functions() functions {
	text := func(text string) func([]string) (string, error) {
		return func([]string) (string, error) { return text, nil }
	}
	replace := o.Replace
	if replace != "" {
		replace = modfile.AutoQuote(replace)
	}
	return functions{
		"name":    text(o.Name),
		"module":  text(o.Module),
		"version": text(o.Version),
		// The directory, quoted if go.mod needs that; empty for none.
		"replace": text(replace),
		// Whether the kind is that of the argument.
		"is": func(args []string) (string, error) {
			if args[0] == o.Kind {
				return o.Kind, nil
			}
			return "", nil
		},
		// Another template, indented by four spaces.
		"include": func(args []string) (string, error) {
			text, err := o.execute(args[0])
			return "    " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    "), err
		},
		// The name as a string of YAML, which 123, true or 1e3 are in quotes only.
		"scalar": func([]string) (string, error) {
			text, err := yaml.Marshal(o.Name)
			return strings.TrimSpace(string(text)), err
		},
	}
}

// release is a version that a module can require: not what Go calls a binary of a checkout, which is a
// pseudo-version such as v0.0.0-20261124030405-0123456789ab, with +dirty where there are changes.
var release = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.?[0-9]+)?$`)

// library is the module that a provider requires.
const library = "github.com/virtual-kubelet/virtual-kubelet"

// Check names all mistakes.
func (o *Options) Check() error {
	var mistakes []error
	if problems := validation.IsDNS1123Label(o.Name); len(problems) > 0 {
		mistakes = append(mistakes, fmt.Errorf("%q cannot be the name of a provider: %s", o.Name, strings.Join(problems, "; ")))
	} else if slices.Contains([]string{"deploy", "testdata", "vendor"}, o.Name) { // git ignores a file of the name
		mistakes = append(mistakes, fmt.Errorf("%q cannot be the name of a provider: it is that of a directory of the repository", o.Name))
	}
	if kinds[o.Kind] == nil {
		mistakes = append(mistakes, fmt.Errorf("there is no kind %q: give --kind one of %s", o.Kind, strings.Join(Kinds(), ", ")))
	}
	if err := module.CheckPath(o.Module); err != nil {
		mistakes = append(mistakes, fmt.Errorf("%q cannot be the path of a module: %w: give --module one like example.org/%s", o.Module, err, o.Name))
	} else if o.Module == library {
		mistakes = append(mistakes, fmt.Errorf("%s is the module that the provider requires: give --module another one, like example.org/%s", library, o.Name))
	}
	if o.Replace == "" {
		if !release.MatchString(o.Version) {
			mistakes = append(mistakes, fmt.Errorf("this binary is no release but of version %q: give --replace the directory of a clone of Virtual Kubelet", o.Version))
		}
	} else if mod, err := os.ReadFile(filepath.Join(o.Replace, "go.mod")); err != nil || !strings.HasPrefix(string(mod), "module "+library+"\n") {
		mistakes = append(mistakes, fmt.Errorf("%s is no clone of Virtual Kubelet: there is no go.mod of its module in it", o.Replace))
	}
	return config.Join(mistakes...)
}
