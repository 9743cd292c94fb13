package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/build/constraint"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Each provider can be the only one of the binary (make build PROVIDERS=...): what its file needs of
// this package is not in the file of another one. Its sources are checked against packages that are
// compiled once; to build the binary once for each provider takes minutes.
func TestEachProviderAlone(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles,Name", ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0", "GOWORK=off") // as make build
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	exports, names := map[string]string{}, []string(nil)
	for packages := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Name string
			GoFiles                  []string
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.Name == "main" {
			names = p.GoFiles
		}
	}

	fset := token.NewFileSet()
	files := map[*ast.File]constraint.Expr{}
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[file] = nil
		for _, comment := range file.Comments {
			if line := comment.List[0].Text; strings.HasPrefix(line, "//go:build !chosen_providers") {
				if files[file], err = constraint.Parse(line); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	imported := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for provider := range providers {
		var chosen []*ast.File
		for file, expr := range files {
			if expr == nil || expr.Eval(func(tag string) bool { return tag == "chosen_providers" || tag == "provider_"+provider }) {
				chosen = append(chosen, file)
			}
		}
		config := types.Config{Importer: imported, Error: func(err error) { t.Errorf("with %s alone: %v", provider, err) }}
		_, _ = config.Check("main", fset, chosen, nil) // all errors go to Error
	}
}
