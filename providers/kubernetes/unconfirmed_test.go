package kubernetes

import (
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// relists is a remote API server whose watches of pods can expire, and whose lists a
// test can choose.
type relists struct {
	remote  *fake.Clientset
	expires atomic.Bool // with the next event

	mu   sync.Mutex
	list *corev1.PodList // nil: the actual pods
}

func newRelists(remote *fake.Clientset) *relists {
	l := &relists{remote: remote}
	remote.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		all, err := remote.Tracker().Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(all, func(event watch.Event) (watch.Event, bool) {
			if l.expires.CompareAndSwap(true, false) {
				expired := apierrors.NewResourceExpired("too old resource version").ErrStatus
				return watch.Event{Type: watch.Error, Object: &expired}, true
			}
			return event, true
		}), nil
	})
	fakeapi.React(&remote.Fake, "list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		asked, ok := action.(clienttesting.ListActionImpl)
		if !ok || l.list == nil || asked.ListRestrictions.Labels.String() == labels.Everything().String() {
			return false, nil, nil // it is the test that lists
		}
		return true, l.list.DeepCopy(), nil
	})
	return l
}

// answer sets the pods that the next lists have; nil means the actual pods.
func (l *relists) answer(list *corev1.PodList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = list
}

// relist makes the provider list the pods again.
func (l *relists) relist(r *rig, touched *corev1.Pod) {
	l.expires.Store(true)
	r.change(touched, func(pod *corev1.Pod) { pod.Annotations["touched"] = "yes" })
	time.Sleep(5 * time.Second)
}

// threeRunning runs three pods.
func threeRunning(r *rig) (pods, remotes []*corev1.Pod) {
	for _, name := range []string{"one", "two", "three"} {
		pod := named(name)
		far := r.create(pod)
		r.change(far, running)
		pod = pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		r.setHomePod(pod)
		pods, remotes = append(pods, pod), append(remotes, r.remotePod(pod))
	}
	r.requests()
	return pods, remotes
}

// harmless fails the test if a home pod has ended, or something was deleted.
func (r *rig) harmless(t *testing.T) {
	t.Helper()
	requests := r.requests()
	for _, unwanted := range []string{"delete pods", "delete secrets", "create pods"} {
		if slices.Contains(requests, unwanted) {
			t.Errorf("the remote cluster was asked to %q", requests)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range r.notified {
		if ended(pod) {
			t.Errorf("pod %s is reported to have ended: %+v", pod.Name, pod.Status)
		}
	}
}

func (r *rig) listed(t *testing.T) map[string]corev1.PodPhase {
	t.Helper()
	pods, err := r.GetPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	phases := map[string]corev1.PodPhase{}
	for _, pod := range pods {
		phases[pod.Name] = pod.Status.Phase
	}
	return phases
}

// A list without the pods, from a restarted API server, one that is behind, or that of
// another cluster, does not mean that they were deleted.
func TestListWithoutThePods(t *testing.T) {
	for _, evicted := range []string{"fail", "restart"} {
		t.Run(evicted, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				lists := newRelists(remote)
				r := newRig(t, "evicted: "+evicted+"\n", remote)
				pods, remotes := threeRunning(r)
				lists.answer(&corev1.PodList{})
				lists.relist(r, remotes[0])
				time.Sleep(30 * time.Second)
				r.harmless(t)
				if found := r.listed(t); len(found) != 3 || found["two"] != corev1.PodRunning {
					t.Errorf("listed are %v", found)
				}
				for _, pod := range pods {
					if found, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil || found.Status.Phase != corev1.PodRunning {
						t.Errorf("pod %s is %v, %v", pod.Name, found, err)
					}
				}
				r.change(r.remotePod(pods[1]), func(pod *corev1.Pod) { pod.Status.PodIP = "10.1.2.3" })
				time.Sleep(time.Minute)
				lists.answer(nil)
				time.Sleep(10 * time.Minute)
				r.harmless(t)
				if found := r.listed(t); len(found) != 3 || found["two"] != corev1.PodRunning {
					t.Errorf("listed are %v once the lists are right", found)
				}
			})
		})
	}
}

// A list that was wrong once is repeated soon, and not very often.
func TestWrongListIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		lists := newRelists(remote)
		r := newRig(t, "", remote)
		_, remotes := threeRunning(r)
		lists.answer(&corev1.PodList{})
		lists.relist(r, remotes[0])
		count := 0
		for range 10 {
			time.Sleep(time.Minute)
			for _, request := range r.requests() {
				if request == "list pods" {
					count++
				}
			}
		}
		if count < 5 || count > 15 {
			t.Errorf("in ten minutes the pods are listed %d times", count)
		}
		lists.answer(nil)
		time.Sleep(2 * time.Minute)
		if n := len(r.podVersions()); n != 3 {
			t.Errorf("%d pods are known by a list", n)
		}
		r.requests()
		time.Sleep(20 * time.Minute)
		r.wantRequests("once the list is right")
	})
}

// A list of an older state ends no pod either.
func TestListOfAnOlderState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		lists := newRelists(remote)
		r := newRig(t, "", remote)
		_, remotes := threeRunning(r)
		old := remotes[0].DeepCopy()
		old.Status = corev1.PodStatus{Phase: corev1.PodPending}
		lists.answer(&corev1.PodList{Items: []corev1.Pod{*old}})
		lists.relist(r, remotes[0])
		time.Sleep(time.Minute)
		lists.answer(nil)
		time.Sleep(10 * time.Minute)
		r.harmless(t)
		if found := r.listed(t); len(found) != 3 || found["two"] != corev1.PodRunning {
			t.Errorf("listed are %v", found)
		}
	})
}

// If a read confirms that the remote API server does not have the pods either, the pod
// controller counts them as lost, but not many at once.
func TestPodsThatAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		lists := newRelists(remote)
		var missing atomic.Bool
		fakeapi.React(&remote.Fake, "get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return missing.Load(), nil, apierrors.NewNotFound(corev1.Resource("pods"), action.(clienttesting.GetAction).GetName())
		})
		r := newRig(t, "", remote)
		pods, remotes := threeRunning(r)
		lists.answer(&corev1.PodList{})
		missing.Store(true)
		lists.relist(r, remotes[0])
		time.Sleep(time.Minute)
		r.harmless(t)
		if found := r.listed(t); len(found) != 0 {
			t.Errorf("listed are %v", found)
		}
		if _, err := r.GetPodByUID(t.Context(), pods[0].Namespace, pods[0].Name, pods[0].UID); !errdefs.IsNotFound(err) {
			t.Errorf("asked for a pod: %v", err)
		}
		lists.answer(nil)
		missing.Store(false)
		time.Sleep(10 * time.Minute)
		r.harmless(t)
		if found := r.listed(t); len(found) != 3 {
			t.Errorf("listed are %v once they are there again", found)
		}
	})
}

// A pod that was deleted while no watch was open is gone.
func TestPodDeletedBetweenTwoWatches(t *testing.T) {
	for evicted, again := range map[string]bool{"fail": false, "restart": true} {
		t.Run(evicted, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				lists := newRelists(remote)
				r := newRig(t, "evicted: "+evicted+"\n", remote)
				pods, remotes := threeRunning(r)
				deleting := pods[0].DeepCopy()
				deleting.DeletionTimestamp = ptr.To(metav1.Now())
				r.setHomePod(deleting)
				lists.answer(&corev1.PodList{Items: []corev1.Pod{*remotes[2]}})
				lists.expires.Store(true)
				for _, far := range remotes[:2] {
					if err := remote.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), far.Namespace, far.Name); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(30 * time.Second)
				lists.answer(nil)
				time.Sleep(time.Minute)
				r.mu.Lock()
				gone := slices.ContainsFunc(r.notified, func(pod *corev1.Pod) bool { return pod.UID == deleting.UID && ended(pod) })
				r.mu.Unlock()
				if !gone {
					t.Error("the pod that home deletes has not gone")
				}
				if r.remotePod(pods[0]) != nil || (r.remotePod(pods[1]) != nil) != again {
					t.Errorf("the remote pods are %v and %v", r.remotePod(pods[0]), r.remotePod(pods[1]))
				}
			})
		})
	}
}

// With "evicted: restart" a pod that exists, although a watch reported its deletion, is
// not deleted for a replacement.
func TestPodThatIsThereIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "evicted: restart\n", newRemote())
		pod := named("one")
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
		r.change(r.create(pod), running)
		far := r.remotePod(pod)
		r.requests()
		r.handleDeleted(far, false)
		time.Sleep(time.Minute)
		r.harmless(t)
		if s := r.last(); s.Phase != corev1.PodRunning || s.ContainerStatuses[0].State.Running == nil {
			t.Errorf("it is %+v", s)
		}
	})
}

// An orphan is deleted with its own grace period.
func TestOrphanHasItsGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		pod := named("one")
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
		r.create(pod)
		if err := r.pods.Delete(pod); err != nil {
			t.Fatal(err)
		}
		pods, err := r.GetPods(t.Context())
		if err != nil || len(pods) != 1 || ptr.Deref(pods[0].Spec.TerminationGracePeriodSeconds, 0) != 600 {
			t.Errorf("%v: listed are %+v", err, pods)
		}
	})
}

// A remote pod that has lost its labels, and whose node does not confirm that it has stopped,
// is as one that has them: its pod fails, or that of a StatefulSet is deleted at home.
func TestUnlabelledPodOfADeadRemoteNode(t *testing.T) {
	for owner, phase := range map[string]corev1.PodPhase{"ReplicaSet": corev1.PodFailed, "StatefulSet": corev1.PodRunning} {
		t.Run(owner, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				r := newRig(t, "", remote)
				pod := named("one")
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "one", UID: "owner", Controller: ptr.To(true)}}
				r.change(r.create(pod), running)
				far := r.remotePod(pod)
				far.Labels = nil
				fakeapi.React(&remote.Fake, "delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					deletedThere(far)
					return true, far, remote.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), far, far.Namespace)
				})
				r.change(far, func(*corev1.Pod) {})
				time.Sleep(85 * time.Second)
				if s := r.last(); s.Phase != corev1.PodRunning || strings.Contains(s.Message, deadlineMessage) {
					t.Errorf("it is %+v while the remote one may still end", s)
				}
				time.Sleep(30 * time.Second)
				if s := r.last(); s.Phase != phase {
					t.Errorf("it is %+v", s)
				}
				recorded := false
				for len(r.events.Events) > 0 {
					recorded = strings.Contains(<-r.events.Events, "RemotePodLost") || recorded
				}
				if !recorded {
					t.Error("no event reports it")
				}
				r.requests()
				pod = pod.DeepCopy()
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](0)
				r.setHomePod(pod)
				if err := r.DeletePod(t.Context(), pod); err != nil || !slices.Contains(r.requests(), "delete pods") {
					t.Errorf("it is not deleted there: %v", err)
				}
			})
		})
	}
}

// The same goes for one that has lost its labels while no provider ran, if it is known to be
// the one of its pod.
func TestRemotePodThatLostItsLabelsUnwatched(t *testing.T) {
	shown := func(pod *corev1.Pod) {
		running(pod)
		pod.Status.ContainerStatuses[0].ContainerID = "containerd://one"
	}
	for what, c := range map[string]struct {
		config  string
		labels  map[string]string
		shown   func(*corev1.Pod) // at home
		deleted bool
	}{
		"all of them":               {shown: shown, deleted: true},
		"all but that of its UID":   {shown: running, labels: map[string]string{translate.LabelUID: "uid-one"}, deleted: true},
		"it is another pod's":       {shown: shown, labels: map[string]string{translate.LabelUID: "uid-two"}},
		"another node's":            {shown: shown, labels: map[string]string{translate.LabelNode: "near"}},
		"nothing of it is known":    {shown: running},
		"it could be created again": {shown: shown, config: "evicted: restart\n"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				before := newRig(t, c.config, remote)
				pod := named("one")
				before.change(before.create(pod), shown)
				if err := before.Close(); err != nil {
					t.Fatal(err)
				}
				before.change(before.remotePod(pod), func(pod *corev1.Pod) { pod.Labels = c.labels })
				c.shown(pod)
				r := newRig(t, c.config, remote, pod)
				found, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
				if known := err == nil && found.Status.ContainerStatuses[0].State.Running != nil; known != c.deleted {
					t.Errorf("it is known: %v, %v", known, err)
				}
				time.Sleep(10 * time.Second)
				if asked := slices.Contains(r.requests(), "delete pods"); asked != c.deleted {
					t.Errorf("it is deleted: %v", asked)
				}
				if s := r.last(); (s.Reason == "RemotePodDeleted") != c.deleted {
					t.Errorf("then its pod is %+v", s)
				}
			})
		})
	}
}
