package statsv1alpha1

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// exported returns the exported types and constants of a file.
func exported(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, decl := range parsed.Decls {
		if d, ok := decl.(*ast.GenDecl); ok {
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					names[s.Names[0].Name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func TestEveryTypeHasItsAlias(t *testing.T) {
	original, err := build.Import("k8s.io/kubelet/pkg/apis/stats/v1alpha1", ".", build.FindOnly)
	if err != nil {
		t.Fatal(err)
	}
	want := exported(t, filepath.Join(original.Dir, "types.go"))
	if got := exported(t, "stats.go"); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
