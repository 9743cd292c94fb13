package kubernetes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// remove deletes a remote pod as its API server does once the kubelet has confirmed
// that it has stopped.
func (r *rig) remove(remote *corev1.Pod) {
	r.t.Helper()
	if err := r.remote.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), remote.Namespace, remote.Name); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// endedBy sets the status that a kubelet gives a pod that is being deleted, whose
// container exited with code. Admission has added an init container, which has completed.
func endedBy(code int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		if code == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "mesh-init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	}
}

// A kubelet gives a pod that is being deleted a terminal phase before it leaves the
// API. If the pod is to be restarted, that phase is not final.
func TestPodWithATerminalPhaseIsReplaced(t *testing.T) {
	for what, c := range map[string]struct {
		policy    corev1.RestartPolicy
		evicted   string
		code      int32
		disrupted bool
		replaced  bool
	}{
		"deleted, exit 0":              {corev1.RestartPolicyAlways, "restart", 0, false, true},
		"deleted, exit 143":            {corev1.RestartPolicyAlways, "restart", 143, false, true},
		"drained, exit 0":              {corev1.RestartPolicyAlways, "restart", 0, true, true},
		"drained, exit 143":            {corev1.RestartPolicyAlways, "restart", 143, true, true},
		"OnFailure, exit 143":          {corev1.RestartPolicyOnFailure, "restart", 143, false, true},
		"OnFailure, exit 0":            {corev1.RestartPolicyOnFailure, "restart", 0, false, false},
		"OnFailure, drained, exit 0":   {corev1.RestartPolicyOnFailure, "restart", 0, true, false},
		"Never":                        {corev1.RestartPolicyNever, "restart", 143, true, false},
		"not to be restarted, drained": {corev1.RestartPolicyAlways, "fail", 0, true, false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "evicted: "+c.evicted+"\n", newRemote())
				pod := named("one")
				pod.Spec.RestartPolicy = c.policy
				r.change(r.create(pod), running)
				first := r.remotePod(pod)
				r.change(first, func(pod *corev1.Pod) {
					if c.disrupted {
						pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
						pod.Status.Reason, pod.Status.Message = "Terminated", "Pod was terminated in response to imminent node shutdown."
					}
					deletedThere(pod)
				})
				r.change(r.remotePod(pod), endedBy(c.code))
				if c.replaced {
					if s := r.last(); s.Phase != corev1.PodPending || s.ContainerStatuses[0].State.Waiting == nil || len(disruptions(s)) > 0 || s.Reason+s.Message != "" {
						t.Errorf("before it leaves the API it is reported to be %+v", s)
					}
				}
				r.remove(first)
				time.Sleep(5 * time.Second)
				next := r.remotePod(pod)
				if (next != nil) != c.replaced || next != nil && next.UID == first.UID {
					t.Errorf("there is remote pod %v", next)
				}
				r.mu.Lock()
				if slices.ContainsFunc(r.notified, ended) == c.replaced {
					t.Errorf("it was reported to have ended: %v", !c.replaced)
				}
				r.mu.Unlock()
				if next == nil {
					return
				}
				// Home has what was reported of the first remote pod, and later a disruption of its own.
				for _, since := range []metav1.Time{metav1.NewTime(time.Now().Add(-time.Minute)), metav1.NewTime(time.Now().Add(time.Minute))} {
					own := since.After(time.Now())
					local := pod.DeepCopy()
					if c.disrupted || own {
						local.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: since}}
					}
					r.setHomePod(local)
					r.change(r.remotePod(pod), func(pod *corev1.Pod) { running(pod); pod.CreationTimestamp = metav1.Now() })
					if got := disruptions(r.last()); slices.Contains(got, corev1.ConditionFalse) != (c.disrupted && !own) || slices.Contains(got, corev1.ConditionTrue) {
						t.Errorf("created again it has DisruptionTarget %v; home has a disruption of its own: %v", got, own)
					}
				}
			})
		})
	}
}

func disruptions(s corev1.PodStatus) (all []corev1.ConditionStatus) {
	for _, c := range s.Conditions {
		if c.Type == corev1.DisruptionTarget {
			all = append(all, c.Status)
		}
	}
	return all
}

// A pod that was ready is not while the remote pod in the place of its former one, of which
// no kubelet has reported anything, does not run, even if no status between them was seen.
func TestReplacementIsNotReadyYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "evicted: restart\n", newRemote())
		pod := named("one")
		ready := []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		r.change(r.create(pod), func(pod *corev1.Pod) { running(pod); pod.Status.Conditions = ready })
		first := r.remotePod(pod)
		r.remove(first)
		time.Sleep(5 * time.Second)
		if next := r.remotePod(pod); next == nil || next.UID == first.UID || len(next.Status.Conditions) > 0 {
			t.Fatalf("there is remote pod %v", next)
		}
		for _, of := range ready {
			s := r.last()
			if i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == of.Type }); i < 0 || s.Conditions[i].Status != corev1.ConditionFalse {
				t.Errorf("%s is not False in %+v", of.Type, s)
			}
		}
	})
}

// A pod that failed by itself, and is deleted then, has failed.
func TestPodThatFailedBeforeItsDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "evicted: restart\n", newRemote())
		pod := named("one")
		r.change(r.create(pod), func(pod *corev1.Pod) {
			deletedThere(pod)
			pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
		})
		r.remove(r.remotePod(pod))
		time.Sleep(time.Minute)
		if s := r.last(); s.Phase != corev1.PodFailed || r.remotePod(pod) != nil {
			t.Errorf("it is %+v, and there is %v", s, r.remotePod(pod))
		}
	})
}

// While its remote pod cannot be created again a pod is not Running, and an event says
// why, once.
func TestPodThatCannotBeReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var full atomic.Bool
		fakeapi.React(&remote.Fake, "create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return full.Load(), nil, apierrors.NewForbidden(corev1.Resource("pods"), "one", errors.New("exceeded quota: small"))
		})
		r := newRig(t, "evicted: restart\n", remote)
		pod := named("one")
		r.change(r.create(pod), running)
		full.Store(true)
		r.remove(r.remotePod(pod))
		time.Sleep(5 * time.Minute)
		found, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		listed, err := r.GetPods(t.Context())
		if err != nil || len(listed) != 1 {
			t.Fatalf("listed are %v, %v", listed, err)
		}
		for what, pod := range map[string]*corev1.Pod{"asked for": found, "listed": listed[0]} {
			if c := pod.Status.ContainerStatuses[0]; c.State.Running != nil || c.Ready || pod.Status.Phase == corev1.PodRunning {
				t.Errorf("%s it is %+v", what, pod.Status)
			}
		}
		count := 0
		for len(r.events.Events) > 0 {
			if strings.Contains(<-r.events.Events, "exceeded quota") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("there are %d events that say why", count)
		}
		full.Store(false)
		time.Sleep(2 * time.Minute)
		if r.remotePod(pod) == nil {
			t.Error("it is not created once it can be")
		}
	})
}

// A pod that is deleted again and again is created with a back-off.
func TestReplacementsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "evicted: restart\n", newRemote())
		pod := named("one")
		r.create(pod)
		r.requests()
		for range 600 {
			if far := r.remotePod(pod); far != nil {
				r.change(far, running)
				r.remove(far)
			}
			time.Sleep(time.Second)
		}
		count := 0
		for _, request := range r.requests() {
			if request == "create pods" {
				count++
			}
		}
		if count < 4 || count > 12 {
			t.Errorf("it was created %d times in ten minutes", count)
		}
		r.mu.Lock()
		reported := slices.ContainsFunc(r.notified, func(pod *corev1.Pod) bool {
			all := pod.Status.ContainerStatuses
			return len(all) == 1 && all[0].State.Waiting != nil && strings.Contains(all[0].State.Waiting.Message, "back-off of 20s")
		})
		r.mu.Unlock()
		if !reported {
			t.Error("the status does not show the back-off")
		}
		time.Sleep(20 * time.Minute) // without a deletion
		r.remove(r.remotePod(pod))
		time.Sleep(time.Second)
		if r.remotePod(pod) == nil {
			t.Error("after a quiet time it is not created at once")
		}
	})
}

// A remote pod that is created while home deletes its pod does not stay.
func TestReplacementThatHomeDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		creating, release := make(chan struct{}), make(chan struct{})
		var holds atomic.Bool
		r := newRig(t, "evicted: restart\n", remote)
		r.Provider.remote = holding{remote, func() {
			if holds.CompareAndSwap(true, false) {
				close(creating)
				<-release
			}
		}}
		pod := named("one")
		r.change(r.create(pod), running)
		holds.Store(true)
		r.remove(r.remotePod(pod))
		<-creating
		deleted := pod.DeepCopy()
		deleted.DeletionTimestamp = ptr.To(metav1.Now())
		r.setHomePod(deleted)
		if err := r.DeletePod(t.Context(), deleted); err == nil {
			t.Error("the remote pod is reported to be there")
		}
		if err := r.pods.Delete(deleted); err != nil {
			t.Fatal(err)
		}
		close(release)
		time.Sleep(time.Second)
		if far := r.remotePod(pod); far != nil {
			t.Errorf("there is %v", far)
		}
	})
}

// A process that may have lost the node to another one creates and deletes nothing by
// itself.
func TestNothingWithoutTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var mine atomic.Bool
		mine.Store(true)
		r := newRigWith(t, newHome("home-uid"), "evicted: restart\nunschedulable: {after: 1m, then: fail}\n", remote, func(made *nodeutil.ProviderConfig) { made.MayBegin = mine.Load })
		taken, unscheduled, gone := named("taken"), named("unscheduled"), named("gone")
		r.change(r.create(taken), func(pod *corev1.Pod) { running(pod); pod.Spec.NodeName = "n" })
		r.change(r.create(gone), func(pod *corev1.Pod) { running(pod); pod.Spec.NodeName = "n" })
		r.create(unscheduled)
		mine.Store(false)
		r.requests()
		r.remove(r.remotePod(taken))
		if err := r.pods.Delete(gone); err != nil {
			t.Fatal(err)
		}
		r.remove(r.remotePod(gone))
		time.Sleep(20 * time.Minute)
		for _, request := range r.requests() {
			if strings.HasPrefix(request, "create") || strings.HasPrefix(request, "delete") {
				t.Errorf("the remote cluster was asked to %s", request)
			}
		}
		mine.Store(true)
		time.Sleep(10 * time.Second)
		if r.remotePod(taken) == nil || r.remotePod(unscheduled) != nil {
			t.Errorf("with the node, there are %v and %v", r.remotePod(taken), r.remotePod(unscheduled))
		}
	})
}

// holding is a remote cluster that waits before it creates a pod: the fake one holds a
// lock that all requests share.
type holding struct {
	clientset.Interface
	wait func()
}

func (h holding) CoreV1() corev1client.CoreV1Interface {
	return holdingCore{h.Interface.CoreV1(), h.wait}
}

type holdingCore struct {
	corev1client.CoreV1Interface
	wait func()
}

func (h holdingCore) Pods(namespace string) corev1client.PodInterface {
	return holdingPods{h.CoreV1Interface.Pods(namespace), h.wait}
}

type holdingPods struct {
	corev1client.PodInterface
	wait func()
}

func (h holdingPods) Create(ctx context.Context, pod *corev1.Pod, options metav1.CreateOptions) (*corev1.Pod, error) {
	h.wait()
	return h.PodInterface.Create(ctx, pod, options)
}
