package virtualkubelet_test

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// TestRetiredWords keeps the words of testdata/retired-words.txt out of Go files,
// documents and manifests. Directories that are not converted yet may have as many as
// testdata/retired-words-allowed.txt allows them, and no more.
func TestRetiredWords(t *testing.T) {
	retired := readRetired(t)
	allowed := readAllowance(t)
	found := map[string][]string{} // by the directory with an allowance; "" without one
	walkText(t, func(path string) {
		var hits []string
		if strings.HasSuffix(path, ".go") {
			hits = retired.inGo(t, path)
		} else {
			hits = retired.inDocument(t, path)
		}
		found[allowanceOf(path, allowed)] = append(found[allowanceOf(path, allowed)], hits...)
	})
	for dir, hits := range found {
		limit := allowed[dir]
		if len(hits) <= limit {
			if len(hits) < limit {
				t.Logf("%s has %d retired words and may have %d: lower its number in testdata/retired-words-allowed.txt", dir, len(hits), limit)
			}
			continue
		}
		const most = 40
		if limit > 0 {
			t.Errorf("%s has %d retired words, and may have %d; use the words that testdata/retired-words.txt names instead in what you have changed", dir, len(hits), limit)
		}
		for _, hit := range hits[:min(len(hits), most)] {
			if limit > 0 {
				t.Log(hit)
			} else {
				t.Error(hit)
			}
		}
	}
}

// retiredWords are the lists of testdata/retired-words.txt: what to write instead, by
// the word or phrase.
type retiredWords struct{ words, names, functions map[string]string }

func readRetired(t *testing.T) retiredWords {
	t.Helper()
	r := retiredWords{map[string]string{}, map[string]string{}, map[string]string{}}
	sections := map[string]map[string]string{"[words]": r.words, "[names]": r.names, "[functions]": r.functions}
	var list map[string]string
	for _, line := range readLines(t, filepath.Join("testdata", "retired-words.txt")) {
		if section, ok := sections[line]; ok {
			list = section
			continue
		}
		forms, instead, ok := strings.Cut(line, "\t")
		if !ok || list == nil {
			t.Fatalf("testdata/retired-words.txt: %q is no section and has no tab", line)
		}
		for form := range strings.SplitSeq(forms, ",") {
			list[strings.TrimSpace(form)] = instead
		}
	}
	return r
}

// readAllowance returns how many retired words directories may have.
func readAllowance(t *testing.T) map[string]int {
	t.Helper()
	allowed := map[string]int{}
	for _, line := range readLines(t, filepath.Join("testdata", "retired-words-allowed.txt")) {
		dir, number, _ := strings.Cut(line, " ")
		count, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil {
			t.Fatalf("testdata/retired-words-allowed.txt: %q: %v", line, err)
		}
		allowed[dir] = count
	}
	return allowed
}

// allowanceOf is the directory or file with an allowance that path is in, the innermost
// one; empty if there is none.
func allowanceOf(path string, allowed map[string]int) (innermost string) {
	for dir := range allowed {
		if (path == dir || strings.HasPrefix(path, dir+"/")) && len(dir) > len(innermost) {
			innermost = dir
		}
	}
	return innermost
}

func readLines(t *testing.T, path string) (lines []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if line := strings.TrimRight(scanner.Text(), " "); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// walkText calls f for each Go file, document and manifest of all modules here, tests
// too.
func walkText(t *testing.T, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir():
			if path != "." && strings.HasPrefix(name, ".") || name == "testdata" || path == "bin" {
				return fs.SkipDir
			}
		case path != "words_test.go" && (slices.Contains([]string{".go", ".md", ".yaml"}, filepath.Ext(name))):
			f(filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inGo finds retired words in the names, comments and messages of a Go file.
func (r retiredWords) inGo(t *testing.T, path string) (hits []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	report := func(pos token.Pos, found []string) {
		for _, what := range found {
			hits = append(hits, fmt.Sprintf("%s: %s", set.Position(pos), what))
		}
	}
	report(file.Pos(), r.inName(strings.TrimSuffix(filepath.Base(path), ".go")))
	for _, group := range file.Comments {
		for i, comment := range group.List {
			text := comment.Text
			if i+1 < len(group.List) { // a phrase may go on in the next line
				next, _, _ := strings.Cut(strings.TrimPrefix(group.List[i+1].Text, "// "), " ")
				report(comment.Pos(), acrossLines(r.words, text, next))
			}
			report(comment.Pos(), inText(r.words, text))
		}
	}
	declared := declaredNames(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if declared[n] {
				report(n.Pos(), r.inName(n.Name))
			}
		case *ast.FuncDecl:
			if words := nameWords(n.Name.Name); len(words) > 0 && r.functions[words[0]] != "" {
				report(n.Name.Pos(), []string{fmt.Sprintf("the function %s: name it %s", n.Name.Name, r.functions[words[0]])})
			}
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING && strings.Contains(n.Value, " ") {
				report(n.Pos(), inText(r.words, n.Value))
			}
		}
		return true
	})
	return hits
}

// declaredNames are the identifiers by which file declares something: a name is found
// where it was given, not where it is used.
func declaredNames(file *ast.File) map[*ast.Ident]bool {
	names := map[*ast.Ident]bool{}
	add := func(all ...*ast.Ident) {
		for _, name := range all {
			names[name] = true
		}
	}
	expression := func(e ast.Expr) {
		if name, ok := e.(*ast.Ident); ok {
			add(name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					expression(e)
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				expression(n.Key)
				expression(n.Value)
			}
		}
		return true
	})
	return names
}

// inDocument finds retired words in a manifest, or in the prose of a Markdown document:
// its code is what it is.
func (r retiredWords) inDocument(t *testing.T, path string) (hits []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	code := false
	for i, line := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if code {
			continue
		}
		var prose []string
		for i, part := range strings.Split(line, "`") {
			if i%2 == 0 {
				prose = append(prose, part)
			}
		}
		for _, what := range inText(r.words, strings.Join(prose, " . ")) {
			hits = append(hits, fmt.Sprintf("%s:%d: %s", path, i+1, what))
		}
	}
	return hits
}

// inName finds retired words in an identifier or a file name.
func (r retiredWords) inName(name string) (found []string) {
	words := nameWords(name)
	for _, list := range []map[string]string{r.words, r.names} {
		for _, hit := range inWords(list, words) {
			found = append(found, fmt.Sprintf("the name %s has %s", name, hit))
		}
	}
	return found
}

func inText(list map[string]string, text string) []string { return inWords(list, textWords(text)) }

// acrossLines finds phrases that begin in one line and end with the first word of the next.
func acrossLines(list map[string]string, line, next string) (found []string) {
	words := textWords(line)
	if len(words) == 0 {
		return nil
	}
	last := words[len(words)-1]
	for _, hit := range inWords(list, append([]string{last}, textWords(next)...)) {
		if strings.Contains(hit, last+" ") {
			found = append(found, hit)
		}
	}
	return found
}

// inWords finds words and phrases of two words.
func inWords(list map[string]string, words []string) (found []string) {
	for i, word := range words {
		if instead, ok := list[word]; ok {
			found = append(found, fmt.Sprintf("%q: write %s", word, instead))
		}
		if i > 0 {
			phrase := words[i-1] + " " + word
			if instead, ok := list[phrase]; ok {
				found = append(found, fmt.Sprintf("%q: write %s", phrase, instead))
			}
		}
	}
	return found
}

// textWords are the words of a text, in lower case.
func textWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
}

// nameWords are the words of a name, in lower case: those of takeUpFile are take, up
// and file.
func nameWords(name string) []string {
	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end()
		}
		word.WriteRune(r)
	}
	end()
	return words
}

func TestNameWords(t *testing.T) {
	for name, want := range map[string][]string{
		"takeUpFile":     {"take", "up", "file"},
		"readTLSConfig":  {"read", "tls", "config"},
		"strays_test":    {"strays", "test"},
		"podUID":         {"pod", "uid"},
		"v1beta1":        {"v", "beta"},
		"TestOwnFolders": {"test", "own", "folders"},
	} {
		if got := nameWords(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// What the check finds, and what it leaves alone.
func TestRetiredWordsAreFound(t *testing.T) {
	r := retiredWords{
		words:     map[string]string{"folder": "directory", "tells whether": "reports whether"},
		names:     map[string]string{"take up": "adopt"},
		functions: map[string]string{"tell": "notify"},
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"clean.go":      {"package p\n\n// f reports whether d is a directory.\nfunc f(d string) bool { return false }\n", 0},
		"comment.go":    {"package p\n\n// f returns a folder.\nfunc f() {}\n", 1},
		"phrase.go":     {"package p\n\n// f tells whether.\nfunc f() {}\n", 1},
		"lines.go":      {"package p\n\n// f tells\n// whether it is.\nfunc f() {}\n", 1},
		"name.go":       {"package p\n\nvar logFolder, x = 1, logFolder\n", 1},
		"names.go":      {"package p\n\nfunc takeUp() { folder := 1; _ = folder }\n", 2},
		"function.go":   {"package p\n\nfunc tellAll() {}\n", 1},
		"message.go":    {"package p\n\nvar err = \"no folder %s\"\nvar key = \"folder\"\n", 1},
		"old_folder.go": {"package p\n", 1},
		"a.md":          {"A folder.\n`folder`\n```\nfolder\n```\n", 1},
	} {
		find := r.inGo
		if strings.HasSuffix(name, ".md") {
			find = r.inDocument
		}
		if hits := find(t, write(name, test.text)); len(hits) != test.want {
			t.Errorf("%s: found %q, want %d", name, hits, test.want)
		}
	}
}
