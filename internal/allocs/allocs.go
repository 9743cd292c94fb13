// Package allocs has tests compare how much hot paths allocate with what was
// committed, in numbers of allocations: those do not depend on the machine or on
// what else it does, as times do. The race detector allocates itself, so such
// tests carry the build constraint !race; "make allocs" runs them.
package allocs

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

const (
	baseline = "testdata/allocs.txt"
	rounds   = 1000 // so many that what is allocated once in a while does not count
)

var update = flag.Bool("allocs.update", false, "write "+baseline+" from what is measured")

// Operation is something of which the allocations count.
type Operation struct {
	Name string // without spaces
	Do   func()
}

// Compare fails unless each operation allocates what testdata/allocs.txt says.
func Compare(t *testing.T, operations ...Operation) {
	t.Helper()
	var measured strings.Builder
	for _, o := range operations {
		fmt.Fprintln(&measured, o.Name, testing.AllocsPerRun(rounds, o.Do))
	}
	if *update {
		if err := os.WriteFile(baseline, []byte(measured.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	committed, err := os.ReadFile(baseline)
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != measured.String() {
		t.Errorf("allocations have changed.\n%s has:\n%snow there are:\n%s"+
			"More are a cost of every pod: see whether they can be helped. If they cannot, or there are fewer, write them down with\n"+
			"  go test -run '^%s$' . -args -allocs.update", baseline, committed, &measured, t.Name())
	}
}

// LiveHeap is how many bytes of the heap what make returns takes. Nothing else may allocate
// what it keeps meanwhile.
func LiveHeap[T any](make func() T) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	made := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(made)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}
