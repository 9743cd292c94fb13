package idlememory_test

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/idlememory"
)

// kept is what the test has in use.
var kept [][]byte

// The process has had 64 MB in use, and needs half of it: the runtime by itself keeps all, as the heap
// may double before it collects.
func TestReturn(t *testing.T) {
	go idlememory.Return(t.Context(), time.Millisecond)
	for range 64 {
		block := make([]byte, 1<<20)
		for i := range block {
			block[i] = 1
		}
		kept = append(kept, block)
	}
	clear(kept[32:])
	runtime.GC() // in a process that works, the next allocations lead to this
	for end := time.Now().Add(time.Minute); held() > 40<<20; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute the heap has %d bytes of the operating system's memory, with half of 64 MB in use", held())
		}
	}
	runtime.KeepAlive(kept)
}

// held is how much memory the heap has of the operating system, in bytes.
func held() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64()
}
