// Package idlememory gives memory back to the operating system when a process has come to rest.
//
// The Go runtime lets the heap grow to twice what is in use before it collects, and keeps what it
// has freed for the next time. After many pods have come or gone at once, nothing may be allocated for
// hours, and all that time the process would have twice the memory that it needs.
//
// While it is at rest, the heap is collected before it has grown much: that costs little where little is allocated.
// So it is while many nodes start, since garbage between what they keep leaves room that cannot be given back.
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
	"sync"
	"time"
)

// Pause is for how long little must have been allocated before memory is given back.
const Pause = 2 * time.Second

const (
	// quietShare is the part of the heap in use that may be allocated in a pause of a process at rest:
	// leases and scrapes of metrics go on, and the leases of many nodes are much.
	quietShare = 4
	// worth is how much must be gained, in percent of the heap in use, so that the collection, which
	// costs by what is in use, is worth it.
	worth = 25
	// least is the least number of bytes that counts for either.
	least = 1 << 20

	// slowPace is by how many percent the heap may grow until it is collected, where the process has Go's pace
	// otherwise. With quietShare, there is a collection each 2.7 seconds at most of a process at rest.
	slowPace, goPace = 33, 100
)

// Return gives memory back when the process has come to rest after its start, and then each time that it is
// worth it, until ctx ends. While the process is at rest, its heap is collected before it has grown much, unless GOGC has
// set another pace than Go's, which is 100.
func Return(ctx context.Context, pause time.Duration) {
	for first := true; ; first = false {
		h, ok := atRest(ctx, pause)
		if !ok {
			return
		}
		usual := Sparingly()
		if first || h.objects+h.free > h.live+h.gain() {
			debug.FreeOSMemory()
			_ = dropExecutable() // where it cannot be, all is as before
		}
		whileAtRest(ctx, pause)
		usual()
	}
}

var sparing struct {
	sync.Mutex
	count int
	ours  bool
}

// Sparingly has the heap collected before it has grown much, until what it returns has been called, once for each call. It
// does nothing where GOGC has set another pace than Go's, which is 100.
func Sparingly() (usual func()) {
	sparing.Lock()
	defer sparing.Unlock()
	if sparing.count++; sparing.count == 1 {
		if sparing.ours = readPace() == goPace; sparing.ours {
			debug.SetGCPercent(slowPace)
		}
	}
	return sync.OnceFunc(func() {
		sparing.Lock()
		defer sparing.Unlock()
		if sparing.count--; sparing.count == 0 && sparing.ours {
			debug.SetGCPercent(goPace)
		}
	})
}

// whileAtRest returns when more has been allocated between two collections than a process at rest does, when
// one has freed more than the process will have before the next, or when ctx has ended. Nothing runs in between: a process at
// rest is not to be woken for this.
func whileAtRest(ctx context.Context, pause time.Duration) {
	for {
		before, since := readHeap(), time.Now()
		select {
		case <-collected():
		case <-ctx.Done():
			return
		}
		now, pauses := readHeap(), max(1, float64(time.Since(since))/float64(pause))
		if float64(now.allocated-before.allocated) > float64(now.quiet())*pauses || now.objects+now.free > now.goal+now.gain() {
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
	goal      uint64 // at which it is collected again
	objects   uint64 // in use, or garbage
	free      uint64 // neither, and not given back
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64(), samples[4].Value.Uint64()}
}

func (h heap) quietSince(before heap) bool {
	return h.allocated-before.allocated <= h.quiet()
}

// quiet is how much a process at rest may allocate in a pause, in bytes.
func (h heap) quiet() uint64 { return max(h.live/quietShare, least) }

// gain is how much there must be to be gained so that a collection is worth it, in bytes.
func (h heap) gain() uint64 { return max(h.live*worth/100, least) }

// readPace returns by how many percent the heap may grow until it is collected.
func readPace() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
