package podgroup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// bare returns nothing of a unit that it creates but the ID, as some services do.
type bare struct{ listing }

func (b bare) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	created, err := b.listing.Create(ctx, r)
	return podgroup.Unit{ID: created.ID}, err
}

// withImage returns the pod with another image.
func withImage(pod *corev1.Pod, image string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Containers[0].Image = image
	pod.ResourceVersion = image
	return pod
}

// update updates a pod until that does not fail any more.
func update(t *testing.T, p nodeutil.Provider, pod *corev1.Pod) {
	t.Helper()
	for range 10 {
		err := p.UpdatePod(t.Context(), pod)
		if err == nil {
			return
		}
		if !errdefs.IsConflict(err) && !errdefs.IsUnavailable(err) {
			t.Fatalf("the update returns %v", err)
		}
		time.Sleep(time.Second)
	}
	t.Fatal("ten updates have failed")
}

func wantImage(t *testing.T, w *grouptest.World, pod, want string) {
	t.Helper()
	u, err := w.OfPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Containers[0].Image; got != want {
		t.Errorf("the image is %s, want %s", got, want)
	}
}

// Another image that the pod gets when no list has its unit yet, and the first one again before a list has
// the second, are what the unit has in the end.
func TestImagesThatTheLastListDoesNotShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(100*time.Millisecond), grouptest.NewCluster("home")
		p, _ := c.Start(t, bare{listing{memory{w}}}, options())
		if _, err := p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		pod := grouptest.NewPod("web")
		create(t, c, p, pod)
		time.Sleep(time.Second)
		update(t, p, withImage(pod, "busybox:2"))
		wantImage(t, w, "web", "busybox:2")
		for _, image := range []string{"busybox:1", "busybox:2"} {
			time.Sleep(time.Second)
			update(t, p, withImage(pod, image))
			wantImage(t, w, "web", image)
		}
		before := w.Calls(string(podgroup.ActionUpdate))
		labelled := withImage(pod, "busybox:2")
		labelled.Labels = map[string]string{"colour": "blue"}
		update(t, p, labelled)
		if n := w.Calls(string(podgroup.ActionUpdate)) - before; n != 0 {
			t.Errorf("a label makes %d updates", n)
		}
	})
}

// An update whose answer is lost, and that the pod does not want any more, is undone.
func TestImageOfAnUpdateThatWasNotAnswered(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		pod := grouptest.NewPod("web")
		create(t, c, p, pod)
		time.Sleep(10 * time.Second)
		statusOf(t, p, pod)
		w.Lose(string(podgroup.ActionUpdate), 1)
		if err := p.UpdatePod(t.Context(), withImage(pod, "busybox:2")); err == nil {
			t.Fatal("the answer is not lost")
		}
		wantImage(t, w, "web", "busybox:2")
		update(t, p, pod)
		wantImage(t, w, "web", "busybox:1")
	})
}

// Whether the unit of an earlier process has the image of its pod is not known until its state is.
func TestImageOfAUnitOfUnknownState(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		pod := grouptest.NewPod("web")
		create(t, c, p, pod)
		time.Sleep(time.Minute)
		p, _ = c.Start(t, sightless{listing{memory{w}}}, options())
		if err := p.UpdatePod(t.Context(), withImage(pod, "busybox:2")); !errdefs.IsConflict(err) {
			t.Errorf("the update returns %v", err)
		}
	})
}

// A new image that the pod gets while no agent runs is applied once one does, also where the API does not tell
// by a generation that something has changed; a name of the same image is not.
func TestImageOfAPodThatChangesWhileTheAgentIsAway(t *testing.T) {
	for name, without := range map[string]func(*fakeapi.API){
		"all":                     func(*fakeapi.API) {},
		"no generations":          func(api *fakeapi.API) { api.NoGenerations = true },
		"no observed generations": func(api *fakeapi.API) { api.NoObservedGenerations = true },
	} {
		t.Run(name, func(t *testing.T) {
			withAgents(t, func(t *testing.T, a *agent) {
				without(a.api)
				pod := grouptest.NewPod("web")
				pod.Generation = 0 // that is the API's
				a.add(pod)
				a.wait(time.Minute, "after the creation", "[Running:1]")
				for i, image := range []string{"docker.io/library/busybox:1", "busybox:2"} {
					a.stop()
					a.api.ChangePod("web", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = image })
					a.start()
					a.wait(time.Minute, "after a restart", "[Running:1]")
					wantImage(t, a.world, "web", []string{"busybox:1", "busybox:2"}[i])
				}
				if n := a.world.Calls(string(podgroup.ActionUpdate)); n != 1 {
					t.Errorf("there were %d updates", n)
				}
			})
		})
	}
}
