package nodeutil

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a controller was given it keeps itself: the watch of a fleet has no copy of each
// Node, and knows all the same which one is gone.
func TestNodeWatchKeepsNoNodeThatIsGivenAway(t *testing.T) {
	w := newNodeWatch(nil)
	w.keep("vk")
	store := nodeStore{w}
	nodeOf := func(name, uid string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	}
	var got []string
	subscribe := func() (undo func()) {
		return w.Subscribe("vk", func(n *corev1.Node, deleted bool) {
			event := n.Name + " " + string(n.UID)
			if deleted {
				event += " deleted"
			}
			got = append(got, event)
		})
	}
	want := func(what string, events ...string) {
		t.Helper()
		if len(got) != len(events) {
			t.Fatalf("%s: it was notified of %q, want %q", what, got, events)
		}
		for i := range events {
			if got[i] != events[i] {
				t.Errorf("%s: it was notified of %q, want %q", what, got, events)
			}
		}
		if kept := w.nodes["vk"].last; kept != nil {
			t.Errorf("%s: the watch keeps the node %s", what, kept.UID)
		}
		got = nil
	}

	_ = store.Add(nodeOf("other", "0"))
	_ = store.Add(nodeOf("vk", "1"))
	undo := subscribe()
	want("known before", "vk 1")
	_ = store.Update(nodeOf("vk", "1"))
	want("changed", "vk 1")
	_ = store.Delete(nodeOf("vk", "1"))
	want("deleted", "vk 1 deleted")
	_ = store.Replace(nil, "")
	want("still gone")
	_ = store.Replace([]any{nodeOf("vk", "2")}, "")
	_ = store.Replace(nil, "")
	want("made again, and gone in a later list", "vk 2", "vk 2 deleted")

	undo()
	_ = store.Add(nodeOf("vk", "3"))
	subscribe()
	want("made while nobody listened", "vk 3")
}
