package idlememory_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/idlememory"
)

// kept is what the test has in use.
var kept [][]byte

// The process at rest has had 64 MB in use, and needs half of it: the runtime by itself keeps all, as the heap
// may double before it collects.
func TestReturn(t *testing.T) {
	kept = nil
	start(t)
	for range 64 {
		block := make([]byte, 1<<20)
		for i := range block {
			block[i] = 1
		}
		kept = append(kept, block)
	}
	awaitPace(t, 33, func() { time.Sleep(time.Millisecond) })
	clear(kept[32:])
	for end := time.Now().Add(time.Minute); held() > 60<<20; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("after a minute the heap has %d bytes of the operating system's memory, with half of 64 MB in use", held())
		}
		runtime.GC() // the runtime does by itself, each two minutes at least
	}
	runtime.KeepAlive(kept)
}

// A process at rest, which the leases of many nodes are part of, does not let its heap double; one at work does, as it
// would have to collect too often.
func TestPace(t *testing.T) {
	kept = [][]byte{make([]byte, 32<<20)}
	start(t)
	runtime.GC()
	awaitPace(t, 33, func() { time.Sleep(time.Millisecond) })
	awaitPace(t, 100, func() {
		for range 8 { // so that a loaded machine allocates enough, too
			garbage = make([]byte, 16<<20)
		}
	})
	awaitPace(t, 33, func() { time.Sleep(time.Millisecond) })
	runtime.KeepAlive(kept)
}

// The last one who wants the heap small decides.
func TestSparingly(t *testing.T) {
	first := idlememory.Sparingly()
	second := idlememory.Sparingly()
	first()
	first()
	if got := pace(); got != 33 {
		t.Errorf("the pace is %d while one wants the heap small", got)
	}
	second()
	if got := pace(); got != 100 {
		t.Errorf("at the end the pace is %d", got)
	}
}

// A pace that somebody has chosen stays.
func TestPaceThatWasChosen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(150))
	defer idlememory.Sparingly()()
	start(t)
	for range 20 {
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
		if got := pace(); got != 150 {
			t.Fatalf("the pace is %d", got)
		}
	}
}

// held is how much memory the heap has of the operating system, in bytes.
func held() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64()
}

// garbage is what was allocated last.
var garbage []byte

// start has memory returned until the end of the test.
func start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { idlememory.Return(ctx, 200*time.Millisecond) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// awaitPace does something until the heap may grow by this many percent.
func awaitPace(t *testing.T, percent uint64, do func()) {
	t.Helper()
	for end := time.Now().Add(time.Minute); pace() != percent; do() {
		if time.Now().After(end) {
			t.Fatalf("after a minute the pace is %d, not %d", pace(), percent)
		}
	}
}

// pace is by how many percent the heap may grow until it is collected.
func pace() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
