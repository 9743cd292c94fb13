package podwatch

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// filtered is a watch without the events that keep rejects. The goroutine of
// watch.Filter waits for ever to hand over an event that nobody receives any more;
// this one ends with Stop.
type filtered struct {
	watch.Interface
	kept    chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func filter(all watch.Interface, keep func(watch.Event) bool) watch.Interface {
	f := &filtered{Interface: all, kept: make(chan watch.Event), stopped: make(chan struct{})}
	go f.run(keep) // ends with the source, or with Stop
	return f
}

func (f *filtered) run(keep func(watch.Event) bool) {
	defer close(f.kept)
	for event := range f.Interface.ResultChan() {
		if !keep(event) {
			continue
		}
		select {
		case f.kept <- event:
		case <-f.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (f *filtered) ResultChan() <-chan watch.Event { return f.kept }

// Stop implements watch.Interface.
func (f *filtered) Stop() {
	f.once.Do(func() { close(f.stopped) })
	f.Interface.Stop()
}
