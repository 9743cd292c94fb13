package kubernetes

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
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
		r.wantRequests("the first pod", "patch secrets", "patch secrets", "create pods", "list pods")
		far := r.create(two)
		r.wantRequests("the next pod with the same Secret", "patch secrets", "create pods", "list pods")

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
		r.wantRequests("the end of a pod", "delete pods", "delete secrets")
		end(two)
		r.wantRequests("the end of the last pod", "delete pods", "delete secrets", "delete secrets")
	})
}

// A pod that names no variables, and no files but those that its remote pod can have from its
// own metadata, costs one request to create, and one to delete.
func TestRequestsOfAPlainPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "tokens: disabled\n", newRemote())
		pod := named("one")
		pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}}}
		pod.Spec.Containers[0].Env = nil
		r.setHomePod(pod)
		resolved := pod.DeepCopy()
		resolved.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"}}
		if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); !errdefs.IsNotFound(err) {
			t.Errorf("before it is created: %v", err)
		}
		if err := r.CreatePod(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		r.wantRequests("a pod", "create pods")
		resolved.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		r.setHomePod(resolved)
		if err := r.DeletePod(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		r.wantRequests("its end", "delete pods")
		time.Sleep(time.Hour)
		if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); !errdefs.IsNotFound(err) {
			t.Errorf("after it was deleted: %v", err)
		}
	})
}

// Whether a pod is there is asked of the remote API server once this process has tried to
// create it, or another may have: an answer may be lost, and the cache be late.
func TestWhoIsAskedForAPod(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*corev1.Pod)
		asked  bool
	}{
		"a new pod":                      {change: func(*corev1.Pod) {}},
		"one that has begun":             {change: func(pod *corev1.Pod) { pod.Status.StartTime = &metav1.Time{} }, asked: true},
		"one that has run":               {change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }, asked: true},
		"one that is to go":              {change: func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }, asked: true},
		"one that home does not have":    {change: func(pod *corev1.Pod) { pod.Name = "other" }, asked: true},
		"one whose namesake home has":    {change: func(pod *corev1.Pod) { pod.UID = "other" }, asked: true},
		"one that waits for a container": {change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses = make([]corev1.ContainerStatus, 1) }, asked: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, pod := named("one"), named("one")
				c.change(local)
				r := newRig(t, "", newRemote(), local)
				if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); !errdefs.IsNotFound(err) {
					t.Errorf("got %v", err)
				}
				if asked := len(r.requests()) > 0; asked != c.asked {
					t.Errorf("the remote cluster was asked: %t", asked)
				}
			})
		})
	}
}

// A creation whose answer is lost, while the watch is late, is noticed.
func TestAnswerToACreationIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		r := newRig(t, "", remote)
		lost := true
		fakeapi.React(&remote.Fake, "create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if !lost {
				return false, nil, nil
			}
			lost = false
			create, ok := action.(clienttesting.CreateActionImpl)
			if !ok {
				return false, nil, nil
			}
			made := create.Object.DeepCopyObject()
			if pod, ok := made.(*corev1.Pod); ok {
				pod.UID = "far"
			}
			if err := remote.Tracker().Create(create.Resource, made, create.Namespace); err != nil {
				return true, nil, err
			}
			return true, nil, apierrors.NewTimeoutError("the answer is lost", 1)
		})
		remote.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
		r.listWatch.relist()
		time.Sleep(time.Minute)
		pod := named("one")
		r.setHomePod(pod)
		if err := r.CreatePod(t.Context(), pod); err == nil {
			t.Fatal("the creation did not fail")
		}
		if found, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil || found.UID != pod.UID {
			t.Errorf("it is not found: %v", err)
		}
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Errorf("a second attempt: %v", err)
		}
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
		if r.remotePod(pod) != nil {
			t.Error("the remote pod is left")
		}
	})
}

// A pod that an earlier process has made, and that the list lacks, has the Secret that it
// refers to until its end, although this process would have made it without.
func TestPodThatNeedsMoreThanANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		pod := named("one")
		pod.Spec.Volumes, pod.Spec.Containers[0].Env = nil, nil
		resolved := pod.DeepCopy()
		resolved.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"}}
		if err := before.CreatePod(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		secrets := func() int {
			list, err := remote.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Items)
		}
		if n := secrets(); n != 1 {
			t.Fatalf("the pod has %d Secrets", n)
		}
		lists := newRelists(remote)
		lists.answer(&corev1.PodList{})
		after := newRig(t, "", remote, pod)
		if _, err := after.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); !errdefs.IsNotFound(err) {
			t.Fatalf("the pod is known: %v", err)
		}
		if err := after.CreatePod(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if secrets() != 1 {
				t.Error("its Secret is removed")
			}
			time.Sleep(2 * housekeepingInterval)
		}
		lists.answer(nil)
		after.listWatch.relist()
		time.Sleep(time.Minute)
		if err := after.DeletePod(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := secrets(); n != 0 {
			t.Errorf("%d Secrets are left", n)
		}
	})
}

// The remote pod is deleted without a question only as the version in the cache. One that
// has changed since is read; if somebody has taken it over, it stays.
func TestDeletionOfAPodThatTheCacheShowsOtherwise(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"its status":       {func(pod *corev1.Pod) { pod.Status.Message = "changed" }, []string{"delete pods", "get pods", "delete pods", "delete secrets", "delete secrets"}},
		"its labels":       {func(pod *corev1.Pod) { pod.Labels = nil }, []string{"delete pods", "get pods"}},
		"another instance": {func(pod *corev1.Pod) { pod.UID, pod.Labels[translate.LabelUID] = "another", "another" }, []string{"delete pods", "get pods"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				r := newRig(t, "", remote)
				pod := named("one")
				far := r.create(pod)
				r.requests()
				first := true
				fakeapi.React(&remote.Fake, "delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					is := action.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
					if !first {
						if *is.UID != far.UID || is.ResourceVersion != nil {
							t.Errorf("the preconditions are %v", is)
						}
						return false, nil, nil
					}
					first = false
					if *is.UID != far.UID || is.ResourceVersion == nil {
						t.Errorf("the first preconditions are %v", is)
					}
					next := far.DeepCopy()
					c.change(next)
					if err := remote.Tracker().Update(action.GetResource(), next, next.Namespace); err != nil {
						return true, nil, err
					}
					return true, nil, apierrors.NewConflict(corev1.Resource("pods"), far.Name, errors.New("the version is not the current one"))
				})
				err := r.DeletePod(t.Context(), pod)
				if stays := len(c.want) == 2; stays && !errdefs.IsNotFound(err) || !stays && err != nil {
					t.Errorf("got %v", err)
				}
				asked := r.requests()
				if slices.Sort(asked[min(len(asked), 3):]); !slices.Equal(asked[:min(len(asked), len(c.want))], c.want) {
					t.Errorf("the remote cluster was asked to %q, want %q", asked, c.want)
				}
			})
		})
	}
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
