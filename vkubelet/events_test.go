package vkubelet

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// reasons are the event reasons that the source files of a directory declare.
func reasons(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	found := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				_, function := n.(*ast.FuncDecl)
				return !function
			}
			for _, spec := range decl.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok && decl.Tok == token.CONST {
					for _, id := range values.Names {
						if len(id.Name) > 6 && id.Name[:6] == "Reason" {
							found[id.Name] = true
						}
					}
				}
			}
			return false
		})
	}
	return slices.Sorted(maps.Keys(found))
}

func TestAllEventReasonsAreHere(t *testing.T) {
	here, there := reasons(t, "."), reasons(t, "../node")
	if len(there) < 12 || !slices.Equal(here, there) {
		t.Errorf("the reasons here are %v, those of package node %v", here, there)
	}
}
