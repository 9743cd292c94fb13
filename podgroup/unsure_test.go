package podgroup_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// deletes requests the deletion of a pod, and returns it.
func deletes(c *grouptest.Cluster, pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](30)
	c.SetPod(pod)
	return pod
}

// reticent is a listing that shows no unit until its pod is to end: it is not sure of it either.
type reticent struct {
	listing
	c *grouptest.Cluster
}

func (b reticent) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	found, err := b.listing.List(ctx, filter, page)
	found.Units = slices.DeleteFunc(found.Units, b.hides)
	return found, err
}

func (b reticent) hides(u podgroup.Unit) bool {
	pod := b.c.Pod("default", u.Tags[podgroup.TagPodName])
	return pod != nil && pod.DeletionTimestamp == nil
}

// reticentWatching is a reticent with events.
type reticentWatching struct{ reticent }

func (b reticentWatching) Watch(ctx context.Context, position string, changed func(podgroup.Unit)) error {
	return watching{b.listing}.Watch(ctx, position, func(u podgroup.Unit) {
		if !b.hides(u) {
			changed(u)
		}
	})
}

// lose creates a pod, and loses the answer.
func lose(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider, pod *corev1.Pod) {
	t.Helper()
	c.SetPod(pod)
	w.Lose(string(podgroup.ActionCreate), 1)
	if err := p.CreatePod(t.Context(), pod); err == nil {
		t.Fatal("the answer is not lost")
	}
}

// Whether a pod whose creation was not answered has a unit is open until it is to end, also when lists
// have lacked it since: for another pod, or for itself, before another try that did not come to pass.
func TestDeletionAfterALostAnswerAndAList(t *testing.T) {
	for name, wrap := range map[string]func(reticent) podgroup.Backend{
		"listing":  func(b reticent) podgroup.Backend { return b },
		"watching": func(b reticent) podgroup.Backend { return reticentWatching{b} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
				p, _ := c.Start(t, wrap(reticent{listing{memory{w}}, c}), options())
				if _, watches := p.(node.PodNotifier); watches {
					notifications(t, p)
				}
				pod, other := grouptest.NewPod("pod"), grouptest.NewPod("other")
				for _, pod := range []*corev1.Pod{pod, other} {
					lose(t, w, c, p, pod)
					time.Sleep(time.Second)
				}
				for _, pod := range []*corev1.Pod{other, pod} {
					if found, err := getByUID(t, p, pod); !errdefs.IsNotFound(err) {
						t.Errorf("pod %v is shown, error %v", found, err)
					}
					time.Sleep(time.Second)
				}
				pod = deletes(c, pod)
				if _, err := getByUID(t, p, pod); err != nil {
					t.Errorf("it runs, and is not shown: %v", err)
				}
				if err := p.DeletePod(t.Context(), pod); err != nil {
					t.Errorf("it runs, and is not deleted: %v", err)
				}
				time.Sleep(10 * time.Second)
				if _, err := getByUID(t, p, pod); !errdefs.IsNotFound(err) {
					t.Errorf("it has stopped, and the error is %v", err)
				}
			})
		})
	}
}

// Pods whose creations failed, and that are deleted at once, share lists.
func TestDeletionsAfterCreationsThatFailed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		if _, err := p.GetPods(t.Context()); err != nil { // as an agent does when it starts
			t.Fatal(err)
		}
		var pods []*corev1.Pod
		w.Refuse(string(podgroup.ActionCreate), 100, &grouptest.Refusal{Status: 403, Code: "Denied"})
		for i := range 100 {
			pods = append(pods, grouptest.NewPod("pod-"+string(rune('a'+i/10))+string(rune('a'+i%10))))
			c.SetPod(pods[i])
			if err := p.CreatePod(t.Context(), pods[i]); err == nil {
				t.Fatal("it is not refused")
			}
		}
		time.Sleep(time.Second)
		before := w.Calls(string(podgroup.ActionList))
		for i := range pods {
			pods[i] = deletes(c, pods[i])
		}
		for _, pod := range pods {
			if _, err := getByUID(t, p, pod); !errdefs.IsNotFound(err) {
				t.Fatal(err)
			}
		}
		if n := w.Calls(string(podgroup.ActionList)) - before; n > 2 {
			t.Errorf("%d lists were made", n)
		}
	})
}

func getByUID(t *testing.T, p nodeutil.Provider, pod *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	return p.(node.PodUIDLifecycleHandler).GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
}

// unprepared is a listing whose creations fail before the service is asked, while it is not ready.
type unprepared struct {
	listing
	ready *bool
}

func (b unprepared) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	if !*b.ready {
		return podgroup.Unit{}, podgroup.NotCreated(errdefs.AsUnavailable(errors.New("the pool cannot be read")))
	}
	return b.listing.Create(ctx, r)
}

// A pod of which nothing was sent is not looked for once it is deleted, unless an earlier creation was.
func TestDeletionAfterACreationThatWasNotSent(t *testing.T) {
	for name, earlier := range map[string]bool{"alone": false, "after one that was sent": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
				ready := true
				p, _ := c.Start(t, unprepared{listing{memory{w}}, &ready}, options())
				if _, err := p.GetPods(t.Context()); err != nil { // as an agent does when it starts
					t.Fatal(err)
				}
				pod := grouptest.NewPod("pod")
				c.SetPod(pod)
				if earlier {
					w.Refuse(string(podgroup.ActionCreate), 1, &grouptest.Refusal{Code: "InternalError"})
					if err := p.CreatePod(t.Context(), pod); err == nil {
						t.Fatal("the service does not fail")
					}
					time.Sleep(30 * time.Second)
				}
				ready = false
				if err := p.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				pod = deletes(c, pod)
				if _, err := getByUID(t, p, pod); errdefs.IsNotFound(err) == earlier {
					t.Errorf("right after its deletion: %v", err)
				}
				time.Sleep(30 * time.Second)
				if _, err := getByUID(t, p, pod); !errdefs.IsNotFound(err) {
					t.Errorf("a minute after the one that was sent: %v", err)
				}
			})
		})
	}
}
