package runtime_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The tests of this file are pods that attack the machine and each other.

// A pod that swaps a directory of its volume for a link, while mount points are
// made in it for another container, has nothing made or removed outside of it.
func TestHostileSwapWhileMountPointsAreMadeAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	shared, inner := n.volume(), n.volume("file", "x")
	outside := filepath.Join(filepath.Dir(n.cfg.Root), "outside")
	must(t, os.MkdirAll(outside+"/there", 0o755))
	must(t, os.MkdirAll(shared+"/swapped/there", 0o777))
	must(t, os.Symlink(outside, shared+"/link"))
	// What the machine has at the paths that become mount points, if they lead outside.
	canary := filepath.Join(outside, "canary")
	must(t, os.Symlink("/vk-no-such/target", canary))
	must(t, os.MkdirAll(shared+"/swapped", 0o777))
	stop, swapping := make(chan struct{}), sync.WaitGroup{}
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, shared+"/swapped", unix.AT_FDCWD, shared+"/link", unix.RENAME_EXCHANGE)
			}
		}
	})
	defer func() { close(stop); swapping.Wait() }()
	box, boxConfig := n.sandbox()
	for range 25 {
		config := sh("true")
		config.Mounts = []*runtimeapi.Mount{
			{ContainerPath: "/shared", HostPath: shared},
			{ContainerPath: "/shared/swapped/made/deep", HostPath: inner},
			{ContainerPath: "/shared/swapped/there/made", HostPath: inner},
			{ContainerPath: "/shared/swapped/file", HostPath: inner + "/file"},
			{ContainerPath: "/shared/swapped/canary", HostPath: inner + "/file"},
		}
		id, err := n.CreateContainer(ctx, box, config, boxConfig)
		must(t, err)
		// It may fail: what it asks for is not there all the time.
		if err := n.StartContainer(ctx, id); err == nil {
			n.ended(id)
		}
		must(t, n.RemoveContainer(ctx, id))
		if target, err := os.Readlink(canary); err != nil || target != "/vk-no-such/target" {
			t.Fatalf("a link outside of the volume was removed: %q, %v", target, err)
		}
		if made := namesIn(t, outside, outside+"/there"); len(made) != 2 {
			t.Fatalf("outside of the volume there is %q", made)
		}
	}
}

// namesIn are the names of what is in directories.
func namesIn(t *testing.T, dirs ...string) []string {
	t.Helper()
	var all []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			all = append(all, e.Name())
		}
	}
	return all
}
