package virtualkubelet_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// ownedSays is what a comment at a go statement is to say.
var ownedSays = regexp.MustCompile(`\b(ends?|waits?|waited)\b`)

// No goroutine is without an owner: a comment in the line of a go statement, or in one of
// the three before it, says with what it ends, or who waits for it. Where something can
// be joined, an errgroup.Group or a sync.WaitGroup is better than a comment.
func TestGoroutinesHaveOwners(t *testing.T) {
	walkText(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || !isLibrary(path) {
			return
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		owned := map[int]bool{} // by the last line of comments that say so
		for _, group := range file.Comments {
			for _, c := range group.List {
				if ownedSays.MatchString(c.Text) {
					owned[files.Position(c.End()).Line] = true
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				line := files.Position(g.Go).Line
				if !owned[line] && !owned[line-1] && !owned[line-2] && !owned[line-3] {
					t.Errorf("%v: say with what this goroutine ends, or who waits for it", files.Position(g.Go))
				}
			}
			return true
		})
	})
}

// isLibrary reports whether a file is of what users import or run.
func isLibrary(path string) bool {
	for _, dir := range []string{"cmd/", "errdefs/", "internal/", "log/", "node/", "podengine/", "podspec/", "providers/", "trace/", "vkubelet/"} {
		if strings.HasPrefix(path, dir) {
			return true
		}
	}
	return false
}
