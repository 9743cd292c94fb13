package podgroup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// startGetting starts a provider of a service without a list, with a pod. round lets a minute pass.
func startGetting(t *testing.T) (*grouptest.World, *grouptest.Cluster, func() (remove func() error)) {
	t.Helper()
	world, cluster := grouptest.New(time.Second), grouptest.NewCluster("home")
	p, _ := cluster.Start(t, getting{memory{world}}, options())
	pod := grouptest.NewPod("web")
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return world, cluster, func() func() error {
		time.Sleep(time.Minute)
		if _, err := p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		return func() error { return p.DeletePod(t.Context(), pod) }
	}
}

// A service without a list cannot be asked for what is left over: a pod that is deleted with
// force is not in the cache of pods any more when its unit has to be deleted.
func TestAForcedDeletionOfAServiceWithoutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster, round := startGetting(t)
		remove := round()
		cluster.RemovePod(cluster.Pod("default", "web"))
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if left := world.Units(nil); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

func TestAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster, round := startGetting(t)
		cluster.FailObject("web", errors.New("the API server is away"))
		round()
		if got := cluster.Pod("default", "web").Annotations; len(got) != 0 {
			t.Errorf("annotations that could not be written: %v", got)
		}
		cluster.FailObject("web", nil)
		time.Sleep(5 * time.Minute)
		if got, want := cluster.Pod("default", "web").Annotations["memory/unit"], world.Units(nil)[0].ID; got != want {
			t.Errorf("the annotation is %q, want %q", got, want)
		}
		patches := len(cluster.Client().(interface{ Actions() []clienttesting.Action }).Actions())
		round()
		round()
		if again := len(cluster.Client().(interface{ Actions() []clienttesting.Action }).Actions()); again != patches {
			t.Errorf("a pod that is annotated costs %d requests", again-patches)
		}
	})
}

// forgetful is a getting whose service shows nothing for a while.
type forgetful struct {
	getting
	shows *bool
}

func (f forgetful) Get(ctx context.Context, pods []*corev1.Pod) ([]podgroup.Unit, error) {
	found, err := f.getting.Get(ctx, pods)
	if !*f.shows {
		return nil, err
	}
	return found, err
}

// A service without a list that shows no unit for a moment is asked for its deletion all the same: once
// the pod has left the API, nothing finds the unit. One that refuses to delete what is not there keeps
// no pod in the API.
func TestADeletionWhileNothingIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster, shows := grouptest.New(time.Second), grouptest.NewCluster("home"), true
		p, _ := cluster.Start(t, forgetful{getting{memory{world}}, &shows}, options())
		pod := grouptest.NewPod("web")
		create(t, cluster, p, pod)
		time.Sleep(2 * time.Minute)
		shows = false
		world.Refuse(string(podgroup.ActionDelete), 1, &grouptest.Refusal{Status: 500, Code: "InternalError"})
		if err := p.DeletePod(t.Context(), pod); err == nil || errdefs.IsNotFound(err) {
			t.Errorf("a deletion that has failed: %v", err)
		}
		if err := p.DeletePod(t.Context(), pod); !errdefs.IsOnlyNotFound(err) {
			t.Errorf("the deletion of a pod that is not shown: %v", err)
		}
		time.Sleep(5 * time.Second)
		if left := world.Units(nil); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
		world.Refuse(string(podgroup.ActionDelete), 1000, &grouptest.Refusal{Status: 500, Code: "InternalError"})
		began := time.Now()
		for err := p.DeletePod(t.Context(), pod); !errdefs.IsNotFound(err); err = p.DeletePod(t.Context(), pod) {
			if time.Since(began) > 5*time.Minute {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// lockedOut is getting, with credentials that are kept in something that is gone while out is true.
type lockedOut struct {
	getting
	out *bool
}

func (l lockedOut) err() error {
	if *l.out {
		return errdefs.AsUnavailable(fmt.Errorf("credentials: %w", errdefs.NotFound("no Secret")))
	}
	return nil
}

func (l lockedOut) Get(ctx context.Context, pods []*corev1.Pod) ([]podgroup.Unit, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.getting.Get(ctx, pods)
}

func (l lockedOut) Delete(ctx context.Context, u *podgroup.Unit, grace time.Duration) error {
	if err := l.err(); err != nil {
		return err
	}
	return l.getting.Delete(ctx, u, grace)
}

// What a service cannot be asked without, and is not there, is not the pod.
func TestADeletionWithoutCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, cluster, out := grouptest.New(time.Second), grouptest.NewCluster("home"), false
		p, _ := cluster.Start(t, lockedOut{getting{memory{world}}, &out}, options())
		pod := grouptest.NewPod("web")
		create(t, cluster, p, pod)
		time.Sleep(2 * time.Minute)
		out = true
		for range 20 {
			if err := p.DeletePod(t.Context(), pod); err == nil || errdefs.IsOnlyNotFound(err) {
				t.Fatalf("the pod counts as gone: %v", err)
			}
			time.Sleep(10 * time.Second)
		}
		out = false
		for err := p.DeletePod(t.Context(), pod); err != nil && !errdefs.IsOnlyNotFound(err); err = p.DeletePod(t.Context(), pod) {
			time.Sleep(10 * time.Second)
		}
		time.Sleep(5 * time.Second)
		if left := world.Units(nil); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	})
}
