//go:build integration

package faults

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// heapSlack is by how much the heap may have grown, in bytes. Nothing of the soak is
// to stay, so that it only has to be more than what comes and goes: maps keep the
// size that they once had, as do buffers and pools, and the histograms and the dice
// of the faults come to have an entry for all that can happen. A kilobyte that each
// pod left would be more in half an hour.
const heapSlack = 4 << 20

// goroutineSlack is how many goroutines more there may be: the watch of pods has one
// more if it was begun again (listwatch.Steady).
const goroutineSlack = 1

// footprint is what this process has.
type footprint struct {
	goroutines, files int
	heap              int64 // bytes that are in use after a collection

	stacks, memory, open map[string]int // how much of which
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %.1f MB of heap", f.goroutines, f.files, float64(f.heap)/(1<<20))
}

// footprint takes the least of a few looks: there may always be a request on its
// way, for the lease say.
func (s *soaking) footprint() footprint {
	var least footprint
	for i := range 8 {
		time.Sleep(400 * time.Millisecond)
		s.w.hangUp()
		time.Sleep(100 * time.Millisecond)
		now := look()
		if i == 0 || now.goroutines < least.goroutines {
			least.goroutines, least.stacks = now.goroutines, now.stacks
		}
		if i == 0 || now.files < least.files {
			least.files, least.open = now.files, now.open
		}
		if i == 0 || now.heap < least.heap {
			least.heap, least.memory = now.heap, now.memory
		}
	}
	return least
}

func look() footprint {
	runtime.GC()
	runtime.GC() // which empties the pools
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	f := footprint{heap: int64(memory.HeapAlloc), stacks: profile("goroutine"), memory: profile("heap"), open: openFiles()}
	for _, n := range f.stacks {
		f.goroutines += n
	}
	for _, n := range f.open {
		f.files += n
	}
	return f
}

// profile returns a profile by stack: goroutines, or bytes of the heap's samples.
// Stacks of which nothing is left, and those of all tests before are among them, would
// be megabytes in the heap that is measured next.
func profile(name string) map[string]int {
	var text bytes.Buffer
	_ = pprof.Lookup(name).WriteTo(&text, 1) // to memory: never fails
	found := map[string]int{}
	var stack strings.Builder
	count := 0
	end := func() {
		if count > 0 {
			found[stack.String()] += count
		}
		stack.Reset()
		count = 0
	}
	for line := range strings.Lines(text.String()) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#\t") && len(words) > 2:
			fmt.Fprintf(&stack, "\t%s\n", strings.Join(words[2:], " "))
		case len(words) > 1 && slices.Contains(words, "@"):
			if name == "heap" {
				count, _ = strconv.Atoi(words[1])
			} else {
				count, _ = strconv.Atoi(words[0])
			}
		case len(words) == 0:
			end()
		}
	}
	end()
	return found
}

// openFiles returns how many files of which kind the process has open: sockets, or
// those of a name.
func openFiles() map[string]int {
	found := map[string]int{}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		name, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil {
			continue // it was the directory itself
		}
		kind, _, _ := strings.Cut(name, ":[")
		found[kind]++
	}
	return found
}

// compare sees whether the process has what it had before.
func (s *soaking) compare(t *testing.T, before footprint) {
	t.Helper()
	var now footprint
	for range 10 { // a connection may be about to end
		if now = s.footprint(); now.goroutines <= before.goroutines+goroutineSlack && now.files <= before.files && now.heap <= before.heap+heapSlack {
			break
		}
	}
	t.Logf("after round %d: %s", s.ended, now)
	if now.goroutines > before.goroutines+goroutineSlack {
		t.Errorf("%d goroutines, and %d before the first round; of these there are more:\n%s", now.goroutines, before.goroutines, more(before.stacks, now.stacks))
	}
	if now.files > before.files {
		t.Errorf("%d open files, and %d before the first round; of these there are more:\n%s", now.files, before.files, more(before.open, now.open))
	}
	if now.heap > before.heap+heapSlack {
		t.Errorf("%s, and %s before the first round; bytes of samples that are more:\n%s", now, before, more(before.memory, now.memory))
	}
}

// more lists the ten things of which there are most more than before.
func more(before, now map[string]int) string {
	grown := map[string]int{}
	for thing, n := range now {
		if n > before[thing] {
			grown[thing] = n - before[thing]
		}
	}
	things := slices.SortedFunc(maps.Keys(grown), func(a, b string) int { return grown[b] - grown[a] })
	var text strings.Builder
	for _, thing := range things[:min(len(things), 10)] {
		fmt.Fprintf(&text, "%d more (%d):\n%s\n", grown[thing], now[thing], thing)
	}
	return text.String()
}
