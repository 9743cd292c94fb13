package virtualkubelet_test

import (
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// duplicateLines is from how many lines on what two places share is a duplicate.
const duplicateLines = 6

// Nothing is written twice but what testdata/duplicates-allowed.txt names, with its reason:
// no two files outside of tests share six lines of code in a row. Lines are compared
// without white space, comments, and those that are nothing but punctuation.
func TestNoDuplicates(t *testing.T) {
	where := map[string][]string{} // the files that have a run of lines
	walkText(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/zz_generated") {
			return
		}
		lines := codeLines(t, path)
		for i := range len(lines) - duplicateLines + 1 {
			run := strings.Join(lines[i:i+duplicateLines], "\n")
			if !slices.Contains(where[run], path) {
				where[run] = append(where[run], path)
			}
		}
	})
	found := map[string]string{} // a run of a pair of files
	for run, files := range where {
		for i, a := range files {
			for _, b := range files[i+1:] {
				found[a+" "+b] = run
			}
		}
	}
	for _, line := range readLines(t, filepath.Join("testdata", "duplicates-allowed.txt")) {
		pair, reason, _ := strings.Cut(line, ": ")
		if _, ok := found[pair]; !ok || reason == "" {
			t.Errorf("testdata/duplicates-allowed.txt: %q is not shared any more, or has no reason: remove it", line)
		}
		delete(found, pair)
	}
	for _, pair := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s: these files share this, and maybe more; let one piece of code serve both\n%s", pair, found[pair])
	}
}

// codeLines returns the lines of a Go file that are compared: none of its comments and
// imports.
func codeLines(t *testing.T, path string) (lines []string) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range slices.Backward(file.Comments) {
		for _, c := range slices.Backward(group.List) {
			blank(source[files.Position(c.Pos()).Offset:files.Position(c.End()).Offset])
		}
	}
	imports := files.Position(file.Name.End()).Offset
	for _, spec := range file.Imports {
		imports = files.Position(spec.End()).Offset
	}
	for line := range strings.Lines(string(source[imports:])) {
		if line = strings.Join(strings.Fields(line), " "); strings.ContainsFunc(line, isWord) {
			lines = append(lines, line)
		}
	}
	return lines
}

// blank overwrites text with spaces, but for its ends of lines.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' {
			text[i] = ' '
		}
	}
}

func isWord(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }
