package kubernetes

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
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

func TestEarlyEventsAreBounded(t *testing.T) {
	var early earlyEvents
	for i := range 2 * maxEarlyEvents {
		early.add(&corev1.Event{InvolvedObject: corev1.ObjectReference{UID: types.UID(fmt.Sprint(i % 2))}})
	}
	if one, other, again := early.pop("0"), early.pop("1"), early.pop("1"); len(one)+len(other) != maxEarlyEvents || len(again) != 0 {
		t.Errorf("kept %d and %d, and then %d", len(one), len(other), len(again))
	}
}
