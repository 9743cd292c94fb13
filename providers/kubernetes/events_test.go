package kubernetes

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An event that arrives before its pod is recorded at home once the pod does. Events of
// other pods never are.
func TestEventsThatComeBeforeTheirPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		r := newRig(t, "", remote)
		pod := named("one")
		about := func(uid types.UID, n int) {
			t.Helper()
			_, err := remote.CoreV1().Events("shop").Create(t.Context(), &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(uid, n)},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "one", UID: uid},
				Type:           corev1.EventTypeNormal, Reason: "Scheduled", Message: fmt.Sprint("number ", n),
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		r.setHomePod(pod)
		wanted, err := r.Provider.remotePod(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		wanted.UID = "far-pod"
		about("far-pod", 1)
		about("somebody-elses", 2)
		about("far-pod", 3)
		if err := remote.Tracker().Create(corev1.SchemeGroupVersion.WithResource("pods"), wanted, "shop"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		about("far-pod", 4)
		for _, want := range []string{"Normal Scheduled remote: number 1", "Normal Scheduled remote: number 3", "Normal Scheduled remote: number 4"} {
			select {
			case got := <-r.events.Events:
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			default:
				t.Errorf("no event, want %q", want)
			}
		}
		if len(r.events.Events) > 0 {
			t.Errorf("one more: %q", <-r.events.Events)
		}
	})
}

// An event is mirrored once, also if the watch of it expires: of the list that follows, those that were missed. Nothing is
// kept of any.
func TestEventsOfALaterList(t *testing.T) {
	var mirrored []string
	s := &eventStore{mirror: func(e *corev1.Event) { mirrored = append(mirrored, e.Name) }}
	event := func(name, version string) any {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	}
	for _, step := range []func() error{
		func() error { return s.Replace([]any{event("old", "3"), event("older", "2")}, "5") },
		func() error { return s.Add(event("new", "9")) },
		func() error { return s.Update(event("old", "11")) },
		func() error { return s.Delete(event("older", "12")) },
		func() error {
			return s.Replace([]any{event("new", "9"), event("old", "11"), event("missed", "100"), event("strange", "x")}, "120")
		},
		func() error { return s.Replace([]any{event("missed", "100")}, "130") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"new", "old", "missed"}; !slices.Equal(mirrored, want) {
		t.Errorf("mirrored %q, want %q", mirrored, want)
	}
}

// Of a first list, all of which is in memory at once, there is what is used of it.
func TestEventsAreTrimmed(t *testing.T) {
	trimmed, err := (&eventStore{}).Transformer()(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: "e", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
		InvolvedObject: corev1.ObjectReference{UID: "far-pod"}, Type: "Normal", Reason: "Pulling", Message: "of an image", ReportingController: "kubelet",
	})
	want := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: "e", ResourceVersion: "7"},
		InvolvedObject: corev1.ObjectReference{UID: "far-pod"}, Type: "Normal", Reason: "Pulling", Message: "of an image",
	}
	if err != nil || !apiequality.Semantic.DeepEqual(trimmed, want) {
		t.Errorf("got %+v, %v", trimmed, err)
	}
}

func TestEarlyEventsAreBounded(t *testing.T) {
	var early earlyEvents
	for i := range 2 * maxEarlyEvents {
		early.add(&corev1.Event{InvolvedObject: corev1.ObjectReference{UID: types.UID(fmt.Sprint(i % 2))}})
	}
	if one, other, again := early.pop("0"), early.pop("1"), early.pop("1"); len(one)+len(other) != maxEarlyEvents || len(again) != 0 {
		t.Errorf("kept %d and %d, and then %d", len(one), len(other), len(again))
	}
}
