// Package idlememory gives memory back to the operating system when a process has come to rest.
//
// The Go runtime lets the heap grow to twice what is in use before it collects, and keeps what it
// has freed for the next time. After many pods have come or gone at once, nothing may be allocated for
// hours, and all that time the process would have twice the memory that it needs.
//
// Half of what a process without pods has in memory are pages of its executable that it needs for its start
// alone, in which hundreds of packages register what they have. The kernel drops them by itself where it is short
// of memory, but until then they count as the process's, and go last, since it has run them. What is
// needed again is mapped again when it is used, as a rule without reading the file.
package idlememory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Pause is for how long little must have been allocated before memory is given back.
const Pause = 2 * time.Second

const (
	// quietShare is the part of the heap in use that may be allocated in a pause of a process at rest:
	// leases and scrapes of metrics go on.
	quietShare = 16
	// worthShare is the part of the heap in use that must be gained, so that the collection, which
	// costs by what is in use, is worth it.
	worthShare = 4
	// least is the least number of bytes that counts for either.
	least = 1 << 20
)

// Return gives memory back when the process has come to rest after its start, and then each time that it is
// worth it, until ctx ends. It collects at most once for each time that the runtime does.
func Return(ctx context.Context, pause time.Duration) {
	for first := true; ; first = false {
		next := collected()
		h, ok := atRest(ctx, pause)
		if !ok {
			return
		}
		if first || h.worthReturning() {
			debug.FreeOSMemory()
			_ = dropExecutable() // where it cannot be, all is as before
			next = collected()   // that was none of the runtime's
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// collected returns a channel that is closed after the next garbage collection.
func collected() <-chan struct{} {
	done := make(chan struct{})
	runtime.AddCleanup(new([16]byte), func(done chan struct{}) { close(done) }, done)
	return done
}

// atRest waits for a pause in which little is allocated. It returns false if ctx ends before.
func atRest(ctx context.Context, pause time.Duration) (heap, bool) {
	for before := readHeap(); ; {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return heap{}, false
		}
		now := readHeap()
		if now.quietSince(before) {
			return now, true
		}
		before = now
	}
}

// heap is what the runtime says of the heap, in bytes.
type heap struct {
	allocated uint64 // since the start of the process
	live      uint64 // in use when garbage was last collected
	objects   uint64 // in use, or garbage
	free      uint64 // neither, and not given back
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}

func (h heap) quietSince(before heap) bool {
	return h.allocated-before.allocated <= max(h.live/quietShare, least)
}

func (h heap) worthReturning() bool {
	return h.objects+h.free > h.live+max(h.live/worthShare, least)
}
