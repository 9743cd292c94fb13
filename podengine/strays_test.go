package podengine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

// strand makes a sandbox of this node that belongs to no pod.
func (r *rig) strand(uid string) {
	r.t.Helper()
	_, err := r.runtime.RunPodSandbox(r.ctx, &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "stray", Uid: uid},
		Labels:      map[string]string{"io.kubernetes.pod.uid": uid},
		Annotations: map[string]string{convert.NodeAnnotation: "vk"},
	}, "")
	if err != nil {
		r.t.Fatal(err)
	}
}

// A runtime that takes long to remove strays keeps nobody from seeing what pods
// do.
func TestStraysHoldUpNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", never)
		r.create(pod)
		removed := make(chan struct{})
		busy := 0
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if call != "RemovePodSandbox" {
				return nil
			}
			busy++
			defer func() { busy-- }()
			if busy > 1 {
				t.Error("two are removed at a time")
			}
			select {
			case removed <- struct{}{}:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		const strays = 3
		for i := range strays {
			r.strand(fmt.Sprint("stray", i))
		}
		r.after(time.Minute)
		r.runtime.exit(r.runtime.newest("a").Id, 3)
		r.after(2 * time.Second)
		r.wantState(pod, "Failed a=Error/3")
		for range strays {
			<-removed
		}
		r.after(time.Second)
		if n := r.runtime.left(); n != 2 { // the pod's sandbox and container
			t.Errorf("%d sandboxes and containers are left", n)
		}
	})
}

func TestStraysThatCannotBeRemovedYet(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.intercept(func(_ context.Context, call string) error {
			if call == "StopPodSandbox" {
				return errors.New("not now")
			}
			return nil
		})
		r.strand("stray")
		r.after(time.Minute)
		if n := len(r.runtime.did()); n < 10 || n > 30 {
			t.Errorf("it was tried %d times in a minute", n)
		}
		r.runtime.intercept(nil)
		r.after(seenStray * relistEvery)
		if n := r.runtime.left(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}
