package kubernetes

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// running sets the status of a remote pod that runs.
func running(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// deletedThere marks a remote pod as being deleted by somebody else, with a grace
// period of 30s.
func deletedThere(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(30*time.Second))), ptr.To[int64](30)
}

// A remote node that is gone never confirms that its pods have stopped. The home pod
// fails after the deadline, so that another is created; the remote pod stays until the
// remote cluster removes it.
func TestPodOfADeadRemoteNodeFails(t *testing.T) {
	for _, evicted := range []string{"fail", "restart"} {
		t.Run(evicted, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "evicted: "+evicted+"\n", newRemote())
				pod := named("one")
				far := r.create(pod)
				r.change(far, running)
				far = r.remotePod(pod)
				r.change(far, deletedThere)
				time.Sleep(85 * time.Second)
				if s := r.last(); s.Phase != corev1.PodRunning {
					t.Errorf("it is %+v while the remote one may still end", s)
				}
				time.Sleep(10 * time.Second)
				if s := r.last(); s.Phase != corev1.PodFailed || s.ContainerStatuses[0].State.Terminated == nil || !strings.Contains(s.Message, "its node does not confirm") {
					t.Errorf("it is %+v", s)
				}
				r.requests()
				time.Sleep(time.Hour)
				for _, request := range r.requests() {
					if request == "delete pods" || request == "create pods" {
						t.Errorf("the remote cluster was asked to %s", request)
					}
				}
			})
		})
	}
}

// The next pod of a StatefulSet would have the data of one that may still run on a
// remote node that is cut off. So that stays, not ready.
func TestPodOfAStatefulSetOnADeadRemoteNodeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		pod := named("db-0")
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: ptr.To(true)}}
		r.change(r.create(pod), func(pod *corev1.Pod) {
			running(pod)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		})
		r.change(r.remotePod(pod), deletedThere)
		time.Sleep(time.Hour)
		if s := r.last(); s.Phase != corev1.PodRunning || s.Conditions[0].Status != corev1.ConditionFalse || s.Conditions[0].Reason != "RemotePodLost" {
			t.Errorf("it is %+v", s)
		}
		count := 0
		for len(r.events.Events) > 0 {
			if strings.Contains(<-r.events.Events, "RemotePodLost") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d events tell of it", count)
		}
		r.remove(r.remotePod(pod))
		time.Sleep(time.Second)
		if s := r.last(); s.Phase != corev1.PodFailed {
			t.Errorf("once its node is back or removed it is %+v", s)
		}
	})
}

// While the remote cluster cannot be reached it is unknown whether a pod that it
// deletes is gone.
func TestPodThatIsDeletedThereInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var away atomic.Bool
		fakeapi.React(&remote.Fake, "get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("away")
		})
		r := newRig(t, "", remote)
		pod := named("one")
		r.change(r.create(pod), running)
		r.change(r.remotePod(pod), deletedThere)
		away.Store(true)
		time.Sleep(time.Hour)
		if s := r.last(); s.Phase != corev1.PodRunning {
			t.Errorf("it is %+v", s)
		}
		away.Store(false)
		time.Sleep(2 * time.Minute)
		if s := r.last(); s.Phase != corev1.PodFailed {
			t.Errorf("it is %+v once the remote cluster is back", s)
		}
	})
}

// A pod that home deletes waits for the remote node, as on any node.
func TestPodThatHomeDeletesWaitsForTheRemoteNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		pod := named("one")
		far := r.create(pod)
		r.change(far, running)
		pod = pod.DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](30)
		r.setHomePod(pod)
		r.change(r.remotePod(pod), deletedThere)
		time.Sleep(time.Hour)
		if s := r.last(); s.Phase != corev1.PodRunning {
			t.Errorf("it is %+v", s)
		}
	})
}

// A remote pod is never deleted with grace period 0: the API server would remove it
// while its containers run. A deletion is not requested again.
func TestRemotePodIsNotDeletedByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var graces []int64
		fakeapi.React(&remote.Fake, "delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			graces = append(graces, *action.(clienttesting.DeleteActionImpl).DeleteOptions.GracePeriodSeconds)
			return true, nil, nil
		})
		r := newRig(t, "", remote)
		pod := named("one")
		far := r.create(pod)
		kill := pod.DeepCopy()
		kill.DeletionTimestamp, kill.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](0)
		if err := r.DeletePod(t.Context(), kill); err != nil {
			t.Fatal(err)
		}
		r.change(far, func(pod *corev1.Pod) {
			deletedThere(pod)
			pod.DeletionGracePeriodSeconds = ptr.To[int64](1)
		})
		if err := r.DeletePod(t.Context(), kill); err != nil {
			t.Fatal(err)
		}
		if len(graces) != 1 || graces[0] != 1 {
			t.Errorf("deleted with grace periods %v, want one of 1", graces)
		}
	})
}

// A pod waits for an older one of its name without many requests.
func TestSuccessorOfAPodOfADeadNodeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		fakeapi.React(&remote.Fake, "delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		r := newRig(t, "", remote)
		far := r.create(named("one"))
		r.change(far, deletedThere)
		next := named("one")
		next.UID = "uid-next"
		wait := func() time.Duration {
			t.Helper()
			err := r.CreatePod(t.Context(), next)
			delay, ok := errdefs.RetryAfter(err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			return delay
		}
		if d := wait(); d > time.Second {
			t.Errorf("it waits for %v while the old one ends", d)
		}
		time.Sleep(time.Hour)
		if d := wait(); d < 30*time.Second {
			t.Errorf("it waits for %v when the old one does not end", d)
		}
	})
}

// A remote namespace that is deleted is created again, with all that pods need in it.
func TestRemoteNamespaceIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var mu sync.Mutex
		namespaces := map[string]bool{}
		for _, verb := range []string{"create", "patch"} {
			fakeapi.React(&remote.Fake, verb, "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				mu.Lock()
				defer mu.Unlock()
				if of := action.GetNamespace(); of != "" && !namespaces[of] {
					return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), of)
				}
				return false, nil, nil
			})
		}
		fakeapi.React(&remote.Fake, "create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			namespaces[action.(clienttesting.CreateActionImpl).Object.(*corev1.Namespace).Name] = true
			return false, nil, nil
		})
		r := newRig(t, "evicted: restart\nnamespaces: {mapping: prefix, prefix: home-, create: true}\n", remote)
		one, two := named("one"), named("two")
		two.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.change(r.create(one), running)
		r.change(r.create(two), running)
		gone := []corev1.Pod{*r.remotePod(one), *r.remotePod(two)}
		if err := remote.CoreV1().Namespaces().Delete(t.Context(), "home-shop", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		delete(namespaces, "home-shop")
		mu.Unlock()
		secrets, err := remote.CoreV1().Secrets("home-shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(secrets.Items) != 3 {
			t.Fatalf("%v: there are %d Secrets", err, len(secrets.Items))
		}
		for _, s := range secrets.Items {
			if err := remote.CoreV1().Secrets("home-shop").Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, pod := range gone {
			if err := remote.CoreV1().Pods("home-shop").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		if r.remotePod(one) == nil {
			t.Error("the pod is not there again")
		}
		again, err := remote.CoreV1().Secrets("home-shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(again.Items) != 2 {
			t.Errorf("%v: there are %d Secrets, want the environment of the pod that runs again, and the one that it names", err, len(again.Items))
		}
	})
}

// Somebody who removes the provider's labels from a remote pod adopts it: it is left
// alone, and an event on the home pod says that it cannot be created again.
func TestRemotePodWithoutItsLabelsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "evicted: restart\n", newRemote())
		pod := named("one")
		far := r.create(pod)
		r.change(far, running)
		r.change(far, func(pod *corev1.Pod) { pod.Labels = nil })
		r.requests()
		time.Sleep(10 * time.Minute)
		for _, request := range r.requests() {
			if request == "delete pods" || request == "create pods" {
				t.Fatalf("the remote cluster was asked to %s", request)
			}
		}
		recorded := false
		for len(r.events.Events) > 0 {
			recorded = strings.Contains(<-r.events.Events, "is left alone") || recorded
		}
		if !recorded {
			t.Error("no event reports it")
		}
	})
}

// Otherwise it is deleted there, since it would not be found later, and its pod fails once it
// is gone. One that another home or node has labelled is that one's.
func TestRemotePodThatLosesItsLabelsIsDeleted(t *testing.T) {
	for what, c := range map[string]struct {
		labels  map[string]string
		deleted bool
	}{
		"none":                 {labels: nil, deleted: true},
		"no label of the home": {labels: map[string]string{translate.LabelCluster: "home", translate.LabelNode: "far"}, deleted: true},
		"another node's":       {labels: map[string]string{translate.LabelCluster: "home", translate.LabelNode: "near"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				r := newRig(t, "", remote)
				pod := named("one")
				r.change(r.create(pod), running)
				far := r.remotePod(pod)
				terminates := true
				fakeapi.React(&remote.Fake, "delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					if !terminates {
						return false, nil, nil
					}
					now := far.DeepCopy()
					now.Labels, now.DeletionTimestamp = c.labels, ptr.To(metav1.Now())
					return true, now, remote.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), now, now.Namespace)
				})
				r.change(far, func(pod *corev1.Pod) { pod.Labels = c.labels })
				time.Sleep(10 * time.Second)
				if asked := slices.Contains(r.requests(), "delete pods"); asked != c.deleted {
					t.Errorf("it is deleted: %v", asked)
				}
				if !c.deleted {
					return
				}
				r.mu.Lock()
				failed := slices.ContainsFunc(r.notified, ended)
				r.mu.Unlock()
				if shown, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); failed || err != nil || shown.Status.Phase != corev1.PodRunning || r.listed(t)["one"] != corev1.PodRunning {
					t.Errorf("while it terminates its pod is shown as %+v, %v; failed: %v", shown, err, failed)
				}
				terminates = false
				r.remove(far)
				time.Sleep(10 * time.Second)
				if s := r.last(); s.Phase != corev1.PodFailed || s.Reason != "RemotePodDeleted" {
					t.Errorf("once it is gone its pod is %+v", s)
				}
				if requests := r.requests(); !slices.Contains(requests, "delete secrets") {
					t.Errorf("what it needed is left: %v", requests)
				}
			})
		})
	}
}

// The labels are enough to find a remote pod whose annotation with the name is gone.
func TestRemotePodWithoutItsNameIsFound(t *testing.T) {
	for mapping, more := range map[string]string{"same": "", "fixed": "namespaces: {mapping: fixed, name: all}\n"} {
		t.Run(mapping, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, more, newRemote())
				pod := named("one")
				far := r.create(pod)
				r.change(far, func(pod *corev1.Pod) { running(pod); delete(pod.Annotations, translate.AnnotationName) })
				r.mu.Lock()
				last := r.notified[len(r.notified)-1]
				r.mu.Unlock()
				if last.Name == "" || last.UID != pod.UID || last.Status.Phase != corev1.PodRunning {
					t.Errorf("it is reported to be %+v", last)
				}
				if shown, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil || shown.Status.Phase != corev1.PodRunning {
					t.Errorf("it is %+v, %v", shown, err)
				}
				if err := r.UpdatePod(t.Context(), pod); err != nil || r.remotePod(pod).Annotations[translate.AnnotationName] != pod.Name {
					t.Errorf("after an update, %v, its annotations are %v", err, r.remotePod(pod).Annotations)
				}
			})
		})
	}
}

// A client that asks for the log of a pod does not get that of an older one, which is left.
func TestLogOfAnOlderPodIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		pod := named("one")
		r.create(pod)
		read := func() error {
			_, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
			return err
		}
		if err := read(); err != nil {
			t.Errorf("the log of the pod: %v", err)
		}
		next := named("one")
		next.UID = "uid-next"
		r.setHomePod(next)
		if err := read(); !errdefs.IsNotFound(err) {
			t.Errorf("the log of the next pod: %v", err)
		}
		if err := r.pods.Delete(next); err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil {
			t.Errorf("the log of what is left: %v", err)
		}
	})
}

// A pod that a controller of the remote cluster adopts has an event of it, once.
func TestRemotePodThatAControllerAdopts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		far := r.create(named("one"))
		r.change(far, func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "set", Controller: ptr.To(true)}}
		})
		r.change(r.remotePod(named("one")), running)
		count := 0
		for len(r.events.Events) > 0 {
			if event := <-r.events.Events; strings.Contains(event, "RemotePodAdopted") && strings.Contains(event, "StatefulSet db") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("there are %d events of it", count)
		}
	})
}

// Pods that wait for a remote namespace do not cause copies to be written over and
// over.
func TestRemoteNamespaceIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var missing atomic.Bool
		for _, verb := range []string{"create", "patch"} {
			fakeapi.React(&remote.Fake, verb, "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return missing.Load(), nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
			})
		}
		r := newRig(t, "", remote)
		r.create(named("one"))
		missing.Store(true)
		patches := func() (count int) {
			t.Helper()
			if err := r.CreatePod(t.Context(), named("two")); err == nil {
				t.Error("a pod was created in a namespace that is not there")
			}
			synctest.Wait()
			for _, request := range r.requests() {
				if request == "patch secrets" {
					count++
				}
			}
			return count
		}
		patches() // all that was in the namespace
		if n := patches(); n != 1 {
			t.Errorf("there were %d writes, want one, of the environment of the pod that is tried", n)
		}
	})
}

// Events have timestamps of the remote cluster's clock, which may be behind.
func TestEventsOfAClockThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		before := newRig(t, "", remote)
		pod := named("one")
		far := before.create(pod)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		event := func(reason string) {
			t.Helper()
			_, err := remote.CoreV1().Events("shop").Create(t.Context(), &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: strings.ToLower(reason)},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "one", UID: far.UID},
				Type:           corev1.EventTypeNormal, Reason: reason, LastTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		event("Early")
		r := newRig(t, "", remote, pod)
		event("Late")
		var recorded []string
		for len(r.events.Events) > 0 {
			recorded = append(recorded, <-r.events.Events)
		}
		if all := strings.Join(recorded, "\n"); !strings.Contains(all, "Late") || strings.Contains(all, "Early") {
			t.Errorf("events %q", recorded)
		}
	})
}

// A sidecar that the remote cluster adds is not in the status of the home pod.
func TestSidecarOfTheRemoteCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		far := r.create(named("one"))
		r.change(far, func(pod *corev1.Pod) {
			running(pod)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "proxy"})
		})
		if s := r.last(); s.Phase != corev1.PodRunning || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].Name != "main" {
			t.Errorf("it is %+v", s)
		}
	})
}
