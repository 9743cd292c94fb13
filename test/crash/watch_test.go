//go:build integration || containers

package crash

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// lookEvery is how often the watcher looks.
const lookEvery = 100 * time.Millisecond

// watcher looks at the pods, and at what runs of them, all the time, and says
// what must not be: once a thing.
type watcher struct {
	t        *testing.T
	p        *population
	machine  machine
	phases   map[types.UID]corev1.PodPhase
	ids      map[container]sets.Set[string] // that have run, by their statuses
	doubles  map[container]sets.Set[string] // of the last look
	reported sets.Set[string]
}

// watch watches until the function that it returns is called.
func watch(t *testing.T, p *population, m machine) (stop func()) {
	w := &watcher{
		t: t, p: p, machine: m,
		phases: map[types.UID]corev1.PodPhase{}, ids: map[container]sets.Set[string]{},
		reported: sets.New[string](),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w.lookAtPods(ctx)
			w.lookAtContainers(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (w *watcher) fail(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !w.reported.Has(text) {
		w.reported.Insert(text)
		w.t.Errorf("%s: %s", time.Now().UTC().Format(time.RFC3339Nano), text)
	}
}

// lookAtPods compares the statuses with what may be, and with the last look.
func (w *watcher) lookAtPods(ctx context.Context) {
	pods := w.p.list(ctx)
	// After the list, so that what a status may say of a start is known.
	if err := w.p.recordBrokenOff(ctx); err != nil && ctx.Err() == nil {
		w.fail("cannot see which starts were broken off: %v", err)
	}
	for _, pod := range pods {
		m := w.p.member(pod.UID)
		before := w.phases[pod.UID]
		w.phases[pod.UID] = pod.Status.Phase
		if (before == corev1.PodSucceeded || before == corev1.PodFailed) && pod.Status.Phase != before {
			w.fail("%s %s (%s) was %s, and is %s", m.name, pod.Name, pod.UID, before, stateOf(&pod))
		}
		// What is asked to end may do so in many ways.
		if m.deleted || pod.DeletionTimestamp != nil {
			continue
		}
		if !m.mayBe(pod.Status.Phase) {
			w.fail("%s %s (%s) should end as %s, and is %s", m.name, pod.Name, pod.UID, m.ends, stateOf(&pod))
		}
		if before == corev1.PodRunning && pod.Status.Phase == corev1.PodPending {
			w.fail("%s %s (%s) did run, and is %s", m.name, pod.Name, pod.UID, stateOf(&pod))
		}
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			w.lookAtStatus(m, &pod, s)
		}
	}
}

func (w *watcher) lookAtStatus(m member, pod *corev1.Pod, s corev1.ContainerStatus) {
	if int(s.RestartCount) >= m.mostStarts(s.Name) {
		w.fail("%s of %s %s (%s) has restarted: %s", s.Name, m.name, pod.Name, pod.UID, stateOf(pod))
	}
	if s.ContainerID == "" || s.State.Waiting != nil {
		return
	}
	c := container{pod.UID, s.Name}
	if w.ids[c] == nil {
		w.ids[c] = sets.New[string]()
	}
	if w.ids[c].Insert(s.ContainerID); len(w.ids[c]) > m.mostStarts(s.Name) {
		w.fail("%s of %s %s (%s) was one container after another: %v", s.Name, m.name, pod.Name, pod.UID, sets.List(w.ids[c]))
	}
}

// lookAtContainers looks for containers that run twice. One look is not taken at
// one moment, so that the end of one and the start of the next may be in it; two
// in a row are sure.
func (w *watcher) lookAtContainers(ctx context.Context) {
	running, err := w.machine.running(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.fail("cannot see what runs: %v", err)
		}
		return
	}
	doubles := map[container]sets.Set[string]{}
	for c, ids := range running {
		if len(ids) > 1 {
			doubles[c] = ids
			if len(ids.Intersection(w.doubles[c])) > 1 {
				m := w.p.member(c.uid)
				w.fail("%s of %s %s (%s) runs twice: %s", c.name, m.name, m.pod, c.uid, strings.Join(sets.List(ids), " "))
			}
		}
	}
	w.doubles = doubles
}
