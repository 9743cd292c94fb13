package podwatch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
)

func TestEachNodeHasItsPodsAndNoOthersAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
		s.put("a1", "a")
		s.put("elsewhere", "c")
		a, ofA := join(t, w, "a")
		b, ofB := join(t, w, "b")
		if a.HasSynced() {
			t.Error("the pods are reported as known before anybody has asked")
		}
		start()
		s.put("a2", "a")
		s.put("b1", "b")
		s.put("other", "c")
		s.put("unbound", "")
		synctest.Wait()
		want(t, "pods of a", names(a), "a1", "a2")
		want(t, "pods of b", names(b), "b1")
		s.put("a2", "a")
		s.remove("a1")
		synctest.Wait()
		want(t, "changes of a", ofA.drain(), "add a1", "add a2", "update a2", "delete a1")
		want(t, "changes of b", ofB.drain(), "add b1")
		want(t, "lists", s.listed(), "spec.nodeName!=")

		for pod, node := range map[string]string{"a2": "a", "b1": "b"} {
			if found, ok := w.Find("default", pod); !ok || found != node {
				t.Errorf("%s is found on %q (%v)", pod, found, ok)
			}
		}
		if found, ok := w.Find("default", "other"); ok {
			t.Errorf("a pod of no member is found on %q", found)
		}
		if _, err := a.Get("default", "b1"); !apierrors.IsNotFound(err) {
			t.Errorf("the pod of another node: got %v, want a NotFound", err)
		}
		if pod, err := a.Get("default", "a2"); err != nil || pod.ManagedFields != nil {
			t.Errorf("got %v, %v; want the pod without its managed fields", pod, err)
		}
	})
}

// One node must not ask for more than its own pods (see the Node authorizer).
func TestForNodeAsksForNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, _ *podwatch.Watch, _ func()) {
		s.put("a1", "a")
		s.put("b1", "b")
		pods := podwatch.NewPods()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); podwatch.ForNode(s, metav1.NamespaceAll, 0, "a", pods).Run(ctx) }()
		<-pods.Synced()
		want(t, "pods", names(pods), "a1")
		want(t, "lists", s.listed(), "spec.nodeName=a")
		cancel()
		<-done
	})
}

func TestNodeThatJoinsLateGetsItsPodsByOneList(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
		s.put("late1", "late")
		start()
		s.put("late2", "late")
		synctest.Wait()
		late, h := join(t, w, "late")
		want(t, "pods", names(late), "late1", "late2")
		want(t, "lists", s.listed(), "spec.nodeName!=", "spec.nodeName=late")
		h.drain()
		s.put("late3", "late")
		s.remove("late1")
		synctest.Wait()
		want(t, "changes since", h.drain(), "add late3", "delete late1")

		w.Leave("late")
		s.put("late4", "late")
		synctest.Wait()
		want(t, "changes after it has left", h.drain())
	})
}

// While the list of a late node is under way, the watch delivers changes, which
// are newer or older than it: in any order, the end is what the server has,
// and no change is reported that the list already contains.
func TestListOfALateNodeAndTheWatchInAnyOrder(t *testing.T) {
	for seed := range uint64(500) {
		bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
			dice := rand.New(rand.NewPCG(seed, 1))
			happen := func() {
				for range dice.IntN(4) {
					name := fmt.Sprint("p", dice.IntN(3))
					if s.pods[name] != nil && dice.IntN(2) == 0 {
						s.remove(name)
					} else {
						s.put(name, "late")
					}
				}
			}
			maybe := func(f func()) {
				if dice.IntN(2) == 0 {
					f()
					synctest.Wait()
				}
			}
			start()
			happen()
			maybe(s.hold)
			happen()
			listed := 0 // the version of the node's own list, where it counts
			s.onList = func(selector string, made bool) {
				if selector != "spec.nodeName=late" {
					return
				}
				if made && listed == 0 {
					listed = s.version
				}
				happen()
				maybe(s.release)
				if dice.IntN(4) == 0 {
					s.breakWatch()
					listed = math.MinInt
					time.Sleep(20 * time.Second) // the watch has started again
				}
				maybe(s.hold)
				happen()
			}
			late, h := join(t, w, "late")
			before := len(h.versions)
			s.release()
			synctest.Wait()
			happen()
			time.Sleep(time.Minute) // for a watch that was broken
			synctest.Wait()

			var wanted []string
			for name := range s.pods {
				wanted = append(wanted, name)
			}
			slices.Sort(wanted)
			if got := names(late); !slices.Equal(got, wanted) {
				t.Fatalf("seed %d: got %q, the server has %q", seed, got, wanted)
			}
			for _, pod := range late.List() {
				if pod.ResourceVersion != s.pods[pod.Name].ResourceVersion {
					t.Errorf("seed %d: %s is of version %s, the server has %s", seed, pod.Name, pod.ResourceVersion, s.pods[pod.Name].ResourceVersion)
				}
			}
			for _, version := range h.versions[before:] {
				if version <= listed {
					t.Errorf("seed %d: a change of version %d after the list of version %d", seed, version, listed)
				}
			}
			known, newest := map[string]bool{}, map[string]int{}
			for i, change := range h.changes {
				var verb, name string
				fmt.Sscan(change, &verb, &name)
				if known[name] == (verb == "add") {
					t.Errorf("seed %d: %q, which is known: %v", seed, change, known[name])
				}
				if h.versions[i] < newest[name] {
					t.Errorf("seed %d: %q of version %d after %d", seed, change, h.versions[i], newest[name])
				}
				known[name], newest[name] = verb != "delete", h.versions[i]
			}
		})
	}
}

// A node that wants to join while the watch begins again is not in the list that
// is under way, and waits for its end.
func TestJoinDuringANewList(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
		start()
		s.put("late1", "late")
		answer := make(chan struct{})
		s.onList = func(selector string, made bool) {
			if selector == "spec.nodeName!=" && !made {
				<-answer
			}
		}
		s.breakWatch()
		time.Sleep(10 * time.Second)
		late := podwatch.NewPods()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Join(ctx, "late", late); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("joined during a list: %v", err)
		}
		close(answer)
		late, _ = join(t, w, "late")
		want(t, "pods", names(late), "late1")
	})
}

// The API's data are restored from a backup, which is older than the list of a node that has joined late.
func TestWatchAfterARestore(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
		s.put("old", "late")
		start()
		backup := s.version
		s.put("lost", "late")
		late, h := join(t, w, "late")
		h.drain()
		s.hold()
		s.restore(backup, "old")
		s.breakWatch()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, "pods", names(late), "old")
		s.put("new", "late")
		synctest.Wait()
		want(t, "pods after one more", names(late), "new", "old")
	})
}

// While a node's own list fails, the watch begins again: its list has the node's pods, and what comes then is not lost.
func TestJoinWhoseListFailsDuringANewList(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
		start()
		s.put("first", "late")
		s.refuse = apierrors.NewInternalError(errors.New("the data could not be read"))
		s.onList = func(selector string, made bool) {
			if selector == "spec.nodeName=late" && !made {
				s.breakWatch()
				time.Sleep(10 * time.Second)
			}
		}
		late := podwatch.NewPods()
		if err := w.Join(t.Context(), "late", late); err != nil {
			t.Fatal(err)
		}
		s.put("second", "late")
		synctest.Wait()
		want(t, "pods", names(late), "first", "second")
	})
}

func TestNewListReportsWhatWasMissed(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
		s.put("same", "a")
		s.put("changed", "a")
		s.put("deleted", "a")
		_, h := join(t, w, "a")
		start()
		h.drain()
		s.hold()
		s.put("changed", "a")
		s.remove("deleted")
		s.put("new", "a")
		s.breakWatch()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		changes := h.drain()
		slices.Sort(changes)
		want(t, "changes", changes, "add new", "delete deleted", "update changed")
	})
}

func TestResyncReportsAllPodsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a1", "a")
		w := podwatch.New(s, metav1.NamespaceAll, time.Minute)
		_, h := join(t, w, "a")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		want(t, "changes", h.drain(), "add a1", "update a1", "update a1")
		cancel()
		<-done
	})
}

func TestLateSubscriberGetsThePodsAndUnsubscribedNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, w *podwatch.Watch, start func()) {
		s.put("a1", "a")
		pods, _ := join(t, w, "a")
		start()
		var h recorder
		known, unsubscribe, err := pods.Subscribe(h.handler())
		if err != nil {
			t.Fatal(err)
		}
		<-known
		want(t, "changes at once", h.drain(), "add a1")
		unsubscribe()
		s.put("a2", "a")
		synctest.Wait()
		want(t, "changes afterwards", h.drain())
	})
}
