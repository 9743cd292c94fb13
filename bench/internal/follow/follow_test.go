package follow

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watches are given out one after the other, each with its events and then its
// end.
type watches struct {
	events [][]watch.Event
	asked  []string // versions
}

func (w *watches) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w.asked = append(w.asked, options.ResourceVersion)
	if len(w.events) == 0 {
		return nil, ctx.Err()
	}
	fake := watch.NewFakeWithChanSize(len(w.events[0]), false)
	for _, e := range w.events[0] {
		fake.Action(e.Type, e.Object)
	}
	fake.Stop()
	w.events = w.events[1:]
	return fake, nil
}

func pod(version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
}

func TestAWatchThatEndsContinuesWhereItWas(t *testing.T) {
	w := &watches{events: [][]watch.Event{
		{{Type: watch.Added, Object: pod("2")}, {Type: watch.Bookmark, Object: pod("5")}},
		{},
		{{Type: watch.Modified, Object: pod("6")}, {Type: watch.Deleted, Object: pod("7")}},
	}}
	var seen []string
	err := Watch(t.Context(), w, metav1.ListOptions{ResourceVersion: "1"}, func(event watch.Event) bool {
		seen = append(seen, event.Object.(*corev1.Pod).ResourceVersion)
		return event.Type == watch.Modified
	})
	if err != nil || !slices.Equal(seen, []string{"2", "6"}) || !slices.Equal(w.asked, []string{"1", "5", "5"}) {
		t.Errorf("saw %v in watches from %v, %v", seen, w.asked, err)
	}
}

func TestAnErrorOfTheAPIServer(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old").Status()
	w := &watches{events: [][]watch.Event{{{Type: watch.Error, Object: &expired}}}}
	if err := Watch(t.Context(), w, metav1.ListOptions{}, func(watch.Event) bool { return false }); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v", err)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watches{events: [][]watch.Event{{{Type: watch.Added, Object: pod("2")}}}}
	err := Watch(ctx, w, metav1.ListOptions{}, func(watch.Event) bool {
		cancel()
		return false
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
