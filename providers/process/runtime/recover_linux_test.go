package runtime_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// A runtime that is killed once it has written that it starts a container, and
// before it does, leaves one that has not run, and can be started.
func TestAStartThatCameToNothingIsTakenBack(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.create(sh("echo ran; exec sleep 1000"))
		must(t, n.Close(ctx))
		must(t, shim.WriteRecord(filepath.Join(n.cfg.Root, "containers", id), shim.IntentFile, shim.Intent{BootID: "any", Time: time.Now()}))
		n.open()
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			t.Fatalf("the container is %v", s)
		}
		must(t, n.StartContainer(ctx, id))
		n.reopen()
		if out := n.waitLog(id, "ran"); strings.Count(out, "ran") != 1 {
			t.Errorf("its log is %q", out)
		}
		if s := n.status(id); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the container is %v", s)
		}
	})
}

// One whose command may have run is never started again.
func TestAStartThatMayHaveRunIsNotTakenBack(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.create(sh("exit 0"))
		must(t, n.Close(ctx))
		dir := filepath.Join(n.cfg.Root, "containers", id)
		must(t, shim.WriteRecord(dir, shim.IntentFile, shim.Intent{BootID: "any", Time: time.Now()}))
		must(t, shim.WriteRecord(dir, shim.StartedFile, shim.Started{Time: time.Now()}))
		n.open()
		if s := n.ended(id); s.Reason != "ContainerStatusUnknown" {
			t.Errorf("the container is %v", s)
		}
	})
}
