package podgroup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// dim is a watching whose units show as much as show leaves of them.
type dim struct {
	watching
	show func(podgroup.Unit) podgroup.Unit
}

func (b dim) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	found, err := b.watching.List(ctx, filter, page)
	for i := range found.Units {
		found.Units[i] = b.show(found.Units[i])
	}
	return found, err
}

func (b dim) Watch(ctx context.Context, position string, changed func(podgroup.Unit)) error {
	return b.watching.Watch(ctx, position, func(u podgroup.Unit) { changed(b.show(u)) })
}

// After a start the units are known before the cache has synced. Which containers their pods have,
// and whether these are started again, only the cache says: until then no pod has ended.
func TestPodsThatTheCacheLacksHaveNotEnded(t *testing.T) {
	for name, show := range map[string]func(podgroup.Unit) podgroup.Unit{
		"unknown": func(u podgroup.Unit) podgroup.Unit {
			return podgroup.Unit{ID: u.ID, Tags: u.Tags, Created: u.Created, Unknown: true}
		},
		"without containers": func(u podgroup.Unit) podgroup.Unit {
			u.Containers = nil
			return u
		},
		"between two runs": func(u podgroup.Unit) podgroup.Unit {
			u.Containers = []podgroup.Container{{Name: "main", Now: podgroup.Run{State: podgroup.Terminated, Finished: u.Created}}}
			return u
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
				p, _ := c.Start(t, watching{listing{memory{w}}}, options())
				pod := grouptest.NewPod("web")
				create(t, c, p, pod)
				time.Sleep(time.Minute)
				c.RemovePod(pod)
				p, _ = c.Start(t, dim{watching{listing{memory{w}}}, show}, options())
				notified := notifications(t, p)
				time.Sleep(time.Minute)
				if phases := notified(pod.Name); len(phases) > 0 {
					t.Errorf("notified of the phases %v", phases)
				}
				pods, err := p.GetPods(t.Context())
				if err != nil || len(pods) != 1 {
					t.Fatalf("%d pods, %v", len(pods), err)
				}
				if phase := pods[0].Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
					t.Errorf("the phase is %s", phase)
				}
			})
		})
	}
}
