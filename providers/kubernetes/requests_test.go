package kubernetes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The requests that a pod costs the remote cluster, from its creation to its end.
// Nothing is sent that has not changed, and at rest nothing at all except for
// housekeeping, which uses another client.
func TestRequestsOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		r := newRig(t, "", remote)
		one, two := named("one"), named("two")
		r.create(one)
		r.wantRequests("the first pod", "get secrets", "patch secrets", "get secrets", "patch secrets", "create pods", "list pods")
		far := r.create(two)
		r.wantRequests("the next pod with the same Secret", "get secrets", "patch secrets", "create pods", "list pods")

		r.change(far, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning })
		r.requests()
		for range 5 {
			if _, err := r.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.GetPodByUID(t.Context(), two.Namespace, two.Name, two.UID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
		}
		r.wantRequests("pods at rest, for 50 minutes")

		if err := r.UpdatePod(t.Context(), two); err != nil {
			t.Fatal(err)
		}
		r.wantRequests("an update of nothing", "get pods")
		two.Labels["color"] = "red"
		if err := r.UpdatePod(t.Context(), two); err != nil {
			t.Fatal(err)
		}
		r.wantRequests("a change of a label", "get pods", "patch pods")
		two.Spec.Containers[0].Env[0].Value = "red"
		if err := r.UpdatePod(t.Context(), two); err != nil {
			t.Fatal(err)
		}
		r.wantRequests("a change of the environment", "patch secrets", "get pods")

		end := func(pod *corev1.Pod) {
			deleted := metav1.Now()
			pod.DeletionTimestamp = &deleted
			r.setHomePod(pod)
			if err := r.DeletePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		end(one)
		r.wantRequests("the end of a pod", "get pods", "delete pods", "delete secrets")
		end(two)
		r.wantRequests("the end of the last pod", "get pods", "delete pods", "delete secrets", "delete secrets")
	})
}

// A provider that adopts pods writes nothing that is up to date.
func TestRequestsOfARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		pods := []*corev1.Pod{named("one"), named("two")}
		for _, pod := range pods {
			before.create(pod)
		}
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		before.requests()
		after := newRig(t, "", remote, pods...)
		for _, request := range after.beginning {
			if request == "patch secrets" || request == "delete secrets" {
				t.Errorf("the provider began with %q", after.beginning)
				break
			}
		}
	})
}

// A pod that was changed at home while no provider ran is reported with the metadata of
// the remote pod, so that the pod controller updates it.
func TestChangesWhileNoProviderRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		pod := named("one")
		before.create(pod.DeepCopy())
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		pod.Labels["app"], pod.Generation = "changed", 2
		after := newRig(t, "", remote, pod)
		found, err := after.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		for what, list := range map[string]func(context.Context) ([]*corev1.Pod, error){
			"once the remote pods are known": after.GetPods, "before": after.list,
		} {
			if listed, err := list(t.Context()); err != nil || len(listed) != 1 || listed[0].Labels["app"] != "one" {
				t.Errorf("%s: listed are %v, %v", what, listed, err)
			}
		}
		if found.Labels["app"] != "one" || found.Status.ObservedGeneration != 1 {
			t.Errorf("it has labels %v and generation %d", found.Labels, found.Status.ObservedGeneration)
		}
		if err := after.UpdatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if found, err = after.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil || found.Labels["app"] != "changed" || found.Status.ObservedGeneration != 2 {
			t.Errorf("%v: after an update it has labels %v and generation %d", err, found.Labels, found.Status.ObservedGeneration)
		}
	})
}
