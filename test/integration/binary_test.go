//go:build integration

package integration

import (
	"debug/elf"
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
	symbols, err := binary.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range symbols {
		if strings.HasPrefix(symbol.Name, "text/template.(*state)") {
			t.Fatalf("%s is in it: was it built by make build? If so, find who executes templates with -ldflags=-dumpdep", symbol.Name)
		}
	}
}
