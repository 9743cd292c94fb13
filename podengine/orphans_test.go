package podengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

// strand makes a sandbox of this node that belongs to no pod.
func (r *rig) strand(uid string) {
	r.t.Helper()
	_, err := r.runtime.RunPodSandbox(r.ctx, &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "orphan", Uid: uid},
		Labels:      map[string]string{"io.kubernetes.pod.uid": uid},
		Annotations: map[string]string{convert.NodeAnnotation: "vk"},
	}, "")
	if err != nil {
		r.t.Fatal(err)
	}
}

// A runtime that takes long to remove orphans keeps nobody from seeing what pods
// do.
func TestOrphansHoldUpNobody(t *testing.T) {
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
		const orphans = 3
		for i := range orphans {
			r.strand(fmt.Sprint("orphan", i))
		}
		r.after(time.Minute)
		r.runtime.exit(r.runtime.newest("a").Id, 3)
		r.after(2 * time.Second)
		r.wantState(pod, "Failed a=Error/3")
		for range orphans {
			<-removed
		}
		r.after(time.Second)
		if n := r.runtime.left(); n != 2 { // the pod's sandbox and container
			t.Errorf("%d sandboxes and containers are left", n)
		}
	})
}

func TestOrphansThatCannotBeRemovedYet(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.intercept(func(_ context.Context, call string) error {
			if call == "StopPodSandbox" {
				return errors.New("not now")
			}
			return nil
		})
		r.strand("orphan")
		r.after(time.Minute)
		if n := len(r.runtime.did()); n < 10 || n > 30 {
			t.Errorf("it was tried %d times in a minute", n)
		}
		r.runtime.intercept(nil)
		r.after(confirmOrphan * relistEvery)
		if n := r.runtime.left(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}

// A pod is not created while what is left of it is being removed: it would adopt
// a sandbox that is about to go.
func TestOrphansDoNotRaceACreation(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", never)
		removing, goOn := make(chan struct{}), make(chan struct{})
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if call != "StopPodSandbox" {
				return nil
			}
			close(removing)
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		r.strand(string(pod.UID))
		<-removing
		if err := r.CreatePod(r.ctx, pod); !errdefs.IsUnavailable(err) {
			t.Errorf("the pod can be created meanwhile: %v", err)
		}
		r.runtime.intercept(nil)
		close(goOn)
		r.after(time.Second)
		r.create(pod)
		r.after(time.Second)
		if n := r.runtime.left(); n != 2 { // the pod's sandbox and container
			t.Errorf("%d sandboxes and containers are left", n)
		}
	})
}

// Volumes of a pod whose record is lost go, once its sandbox has; those of a pod that
// is created again stay. A record that cannot be read is put aside.
func TestWhatIsLeftWithoutARecordIsCollected(t *testing.T) {
	inBubble(t, func(r *rig) {
		back := makePod("back")
		r.end()
		volume := func(uid string) string {
			return filepath.Join(r.cfg.Root, "pods", uid, "volumes", "kubernetes.io~empty-dir", "v")
		}
		lost, kept := volume("lost"), volume(string(back.UID))
		record := filepath.Join(r.cfg.Root, "pods", "lost", "pod.json")
		if err := errors.Join(os.MkdirAll(lost, 0o750), os.MkdirAll(kept, 0o750), os.WriteFile(record, []byte("{"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r.strand("lost")
		r.begin()
		r.create(back)
		r.after(2 * relistEvery)
		if _, err := os.Stat(lost); err != nil {
			t.Errorf("volumes are removed while there is a sandbox: %v", err)
		}
		r.after(10 * confirmOrphan * relistEvery)
		if _, err := os.Stat(filepath.Join(r.cfg.Root, "pods", "lost")); !os.IsNotExist(err) {
			t.Errorf("what was lost is left: %v", err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("volumes of a pod that came back: %v", err)
		}
		if aside, _ := filepath.Glob(filepath.Join(r.cfg.Root, "broken", "pod-lost-*.json")); len(aside) != 1 {
			t.Errorf("put aside are %q", aside)
		}
	})
}
