package faults

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	histories = flag.Int("faults.histories", 0, "how many random histories are run; 0 means as many as there is time for")
	within    = flag.Duration("faults.within", 15*time.Second, "the time for random histories, unless their number is given")
	steps     = flag.Int("faults.steps", 30, "steps in a random history")
	file      = flag.String("faults.history", "", "a file with a history to run, with what the provider is asked for printed")
	seed      = flag.Uint64("faults.seed", 0, "the first seed; 0 means a fixed one and one that is new each time")
)

// For all faults of the agent, its API server and its provider, what must
// always hold does.
func TestRandomHistories(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = []uint64{1, rand.Uint64() >> 1}
	}
	share := *within / time.Duration(len(seeds))
	for _, base := range seeds {
		ran := runFrom(t, base, share)
		t.Logf("%d histories of %d steps from -faults.seed=%d", ran, *steps, base)
	}
}

// TestHistory runs the history of -faults.history, and logs what happens in it.
func TestHistory(t *testing.T) {
	if *file == "" {
		return
	}
	logf = func(format string, args ...any) { t.Logf(time.Now().Format("15:04:05.000 ")+format, args...) }
	defer func() { logf = nil }()
	runFile(t, *file)
}

// runFrom runs the histories of the seeds from base on, and returns how many.
func runFrom(t *testing.T, base uint64, share time.Duration) int {
	deadline := time.Now().Add(share)
	var next, failed atomic.Int64
	var workers sync.WaitGroup
	more := func() (history, bool) {
		n := next.Add(1) - 1
		if *histories > 0 && n >= int64(*histories) || *histories == 0 && time.Now().After(deadline) || failed.Load() > 0 {
			next.Add(-1)
			return history{}, false
		}
		return drawHistory(base+uint64(n), *steps), true
	}
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for h, ok := more(); ok; h, ok = more() {
				if broken := run(t, h); len(broken) > 0 && failed.Add(1) == 1 {
					t.Logf("seed %d: %s", h.seed, strings.Join(broken, "\n"))
					report(t, h)
				}
			}
		})
	}
	workers.Wait()
	return int(next.Load())
}

// What random histories have found stays fixed.
func TestHistoriesThatOnceFailed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			runFile(t, file)
		})
	}
}

func runFile(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	h, err := parseHistory(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if broken := run(t, h); len(broken) > 0 {
		t.Errorf("%s\n%s", strings.Join(broken, "\n"), h)
	}
}
