//go:build integration

package integration

import (
	"debug/elf"
	"debug/gosym"
	"path/filepath"
	"strings"
	"testing"
)

// The binary has what it can call. If anything in it executes templates, which
// call methods by their names, the linker keeps all exported methods of
// everything: 30 MB, of which 20 are in memory.
func TestBinaryHasOnlyWhatItCalls(t *testing.T) {
	binary, err := elf.Open(filepath.Join(bin, "virtual-kubelet"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	// It has no symbols for debuggers, but names for stack traces.
	lines, text := binary.Section(".gopclntab"), binary.Section(".text")
	if lines == nil || text == nil {
		t.Fatal("it has no names of functions")
	}
	data, err := lines.Data()
	if err != nil {
		t.Fatal(err)
	}
	names, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		t.Fatal(err)
	}
	if names.LookupFunc("main.main") == nil {
		t.Fatal("it has no main.main")
	}
	for _, f := range names.Funcs {
		if strings.HasPrefix(f.Name, "text/template.(*state)") {
			t.Fatalf("%s is in it: was it built by make build? If so, find who executes templates with -ldflags=-dumpdep", f.Name)
		}
	}
}
