package specs

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadKnown(t *testing.T) {
	got, err := ReadKnown(write(t, `# Specs that fail.

# Needs a network
# of its own.
- one
two
# Lacks a kernel module.
? three

# Has no image.
four
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Known{
		"one":   {LeftOut, "Needs a network of its own."},
		"two":   {Fails, "Needs a network of its own."},
		"three": {Depends, "Lacks a kernel module."},
		"four":  {Fails, "Has no image."},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAReasonMustBeGiven(t *testing.T) {
	if _, err := ReadKnown(write(t, "# Specs that fail.\n\none\n")); err == nil || !strings.Contains(err.Error(), `"one"`) {
		t.Errorf("got %v", err)
	}
}

// A name that is misspelt would stand for nothing.
func TestListsNameSpecs(t *testing.T) {
	all, err := Names("../../specs.txt")
	if err != nil || len(all) != 255 {
		t.Fatalf("%d specs: %v", len(all), err)
	}
	names, err := Names("../../specs-ci.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d specs: %v", len(names), err)
	}
	files, err := filepath.Glob("../../expected-failures-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		known, err := ReadKnown(file)
		if err != nil {
			t.Error(err)
		}
		names = slices.AppendSeq(names, maps.Keys(known))
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			t.Errorf("specs.txt has no %q", name)
		}
	}
}
