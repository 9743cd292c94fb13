package virtualkubelet_test

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Every public package of the library has an Example, which its readers can copy and the
// compiler checks.
func TestPublicPackagesHaveExamples(t *testing.T) {
	seen := map[string]bool{}
	files(t, func(name string, file *ast.File, _ *token.FileSet) {
		pkg := path.Dir(name)
		// The fake of a service of a provider, or of its driver: its use is in the tests of that, and in
		// cmd/virtual-kubelet/everyprovider_test.go.
		isFake, _ := path.Match("providers/*/*test", pkg)
		ofDriver, _ := path.Match("providers/*/*/*test", pkg)
		if seen[pkg] || isFake || ofDriver || file.Name.Name == "main" || !isLibrary(pkg+"/") || strings.HasPrefix(pkg, "cmd/") || strings.Contains("/"+pkg+"/", "/internal/") {
			return
		}
		seen[pkg] = true
		if !hasExample(t, pkg) {
			t.Errorf("package %s has no Example: write one in %s/example_test.go", pkg, pkg)
		}
	})
}

func hasExample(t *testing.T, pkg string) bool {
	t.Helper()
	tests, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		text, err := os.ReadFile(test)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc Example") {
			return true
		}
	}
	return false
}
