package virtualkubelet_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// The core decides by classes and codes of errors. What one runtime or backend writes in
// its messages is known to that provider alone: the core compares no text of an error or
// of a message with another, and names no runtime.
func TestCoreParsesNoErrorText(t *testing.T) {
	core := []string{"errdefs", "node", "podspec", "podengine", "internal"}
	comparing := []string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Cut", "CutPrefix", "CutSuffix", "TrimPrefix", "TrimSuffix"}
	files(t, func(path string, file *ast.File, set *token.FileSet) {
		switch {
		case within(path, "internal/nodecheck"): // which checks what users are shown
			return
		case path == "node/api/execstatus.go": // the words of the kubelet's streaming library, which that file has, too
			return
		case path == "node/restriction.go": // a refusal of NodeRestriction, in the one API server that there is
			return
		}
		if !slices.ContainsFunc(core, func(pkg string) bool { return within(path, pkg) }) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || len(n.Args) == 0 {
					return true
				}
				if pkg, ok := f.X.(*ast.Ident); ok && pkg.Name == "strings" && slices.Contains(comparing, f.Sel.Name) || strings.HasPrefix(f.Sel.Name, "Match") {
					if slices.ContainsFunc(n.Args, isErrorText) {
						t.Errorf("%s: the text of an error is compared: use its class", set.Position(n.Pos()))
					}
				}
			case *ast.BasicLit:
				text := strings.ToLower(n.Value)
				if n.Kind == token.STRING && (strings.Contains(text, "containerd") || strings.Contains(text, "cri-o")) {
					t.Errorf("%s: %s names a runtime, of which the core knows none", set.Position(n.Pos()), n.Value)
				}
			}
			return true
		})
	})
}

// isErrorText reports whether an expression is made of err.Error(), or of a message.
func isErrorText(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			found = found || slices.Contains([]string{"Error", "Message", "GetMessage"}, s.Sel.Name)
		}
		return !found
	})
	return found
}
