package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/client-go/util/workqueue"
)

// The two that follow do the same: add 1000 keys, and have each handled by one
// of ten workers; the second with client-go's queue, as it was done before.

func BenchmarkAddAndHandle(b *testing.B) {
	var handled sync.WaitGroup
	q := New("benchmark", nil, nil, func(context.Context, string) error { handled.Done(); return nil })
	ctx, cancel := context.WithCancel(b.Context())
	q.Start(ctx, 10)
	keys := benchmarkKeys()
	b.ReportAllocs()
	for b.Loop() {
		handled.Add(len(keys))
		for _, key := range keys {
			q.Add(key)
		}
		handled.Wait()
	}
	cancel()
	q.Wait()
}

func BenchmarkAddAndHandleClientGo(b *testing.B) {
	var handled, workers sync.WaitGroup
	q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: "benchmark-client-go"})
	for range 10 {
		workers.Go(func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(key)
				handled.Done()
			}
		})
	}
	keys := benchmarkKeys()
	b.ReportAllocs()
	for b.Loop() {
		handled.Add(len(keys))
		for _, key := range keys {
			q.AddAfter(key, 0)
		}
		handled.Wait()
	}
	q.ShutDown()
	workers.Wait()
}

// One key at a time, each of which starts a worker.
func BenchmarkOneKey(b *testing.B) {
	handled := make(chan struct{})
	q := New("benchmark", nil, nil, func(context.Context, string) error { handled <- struct{}{}; return nil })
	ctx, cancel := context.WithCancel(b.Context())
	q.Start(ctx, 10)
	b.ReportAllocs()
	for b.Loop() {
		q.Add("a")
		<-handled
	}
	cancel()
	q.Wait()
}

func benchmarkKeys() []string {
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("default/pod-%d", i)
	}
	return keys
}
