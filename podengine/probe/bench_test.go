package probe

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkWaiting measures what 10,000 probes that wait cost: with timers, as
// the Manager has them, and with a goroutine for each. Before that each is made
// once, with as much stack as an http request takes.
func BenchmarkWaiting(b *testing.B) {
	const probes = 10_000
	pods := make([]*corev1.Pod, probes)
	for i := range pods {
		pods[i] = podWith(nil, every(3600, 0, 1, 1), nil)
		pods[i].UID = types.UID(fmt.Sprint(i))
	}
	b.Run("timers", func(b *testing.B) {
		for b.Loop() {
			var made atomic.Int32
			m := NewManager(ManagerOptions{Runner: runnerFunc(func(context.Context) (Outcome, string, error) {
				deep(16)
				made.Add(1)
				return Success, "", nil
			})})
			before := memory()
			for _, pod := range pods {
				m.Set(Pod{Pod: pod, Containers: map[string]Container{"c": {ID: "1", StartedAt: time.Now()}}})
			}
			report(b, before, &made, probes)
			m.Close()
		}
	})
	b.Run("goroutines", func(b *testing.B) {
		for b.Loop() {
			var made atomic.Int32
			var group sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			before := memory()
			for range pods {
				group.Go(func() {
					ticker := time.NewTicker(time.Hour)
					defer ticker.Stop()
					for {
						deep(16)
						made.Add(1)
						select {
						case <-ctx.Done():
							return
						case <-ticker.C:
						}
					}
				})
			}
			report(b, before, &made, probes)
			cancel()
			group.Wait()
		}
	})
}

//go:noinline
func deep(n int) byte {
	var frame [256]byte
	frame[n] = byte(n)
	if n > 0 {
		frame[0] = deep(n - 1)
	}
	return frame[n] + frame[0]
}

// memory is what lives on the heap, and the stacks.
func memory() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

func report(b *testing.B, before uint64, made *atomic.Int32, probes int32) {
	for made.Load() < probes {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond)
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
	b.ReportMetric((float64(memory())-float64(before))/float64(probes), "B/probe")
}

// BenchmarkSet measures a Set that changes nothing, which is the usual one.
func BenchmarkSet(b *testing.B) {
	m := NewManager(ManagerOptions{Runner: runnerFunc(func(context.Context) (Outcome, string, error) { return Success, "", nil })})
	defer m.Close()
	pod := Pod{Pod: podWith(nil, every(3600, 0, 1, 1), every(3600, 0, 1, 1)), Containers: map[string]Container{"c": {ID: "1", StartedAt: time.Now()}}}
	b.ReportAllocs()
	for b.Loop() {
		m.Set(pod)
	}
}
