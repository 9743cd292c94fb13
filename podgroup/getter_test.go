package podgroup_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clienttesting "k8s.io/client-go/testing"

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
