package runtime_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// fill uses up all inodes of a file system, by files in a directory.
func fill(t *testing.T, dir string) {
	t.Helper()
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// What has filled the disk can be removed: that needs no room.
func TestAPodOnAFullDiskIsRemovedAsRoot(t *testing.T) {
	asRoot(t)
	for _, isolation := range isolations() {
		t.Run(isolation, func(t *testing.T) {
			disk := tempDir(t)
			must(t, unix.Mount("disk", disk, "tmpfs", 0, "mode=711,nr_inodes=500"))
			t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
			n := newNode(t, func(c *runtime.Config) { c.Isolation, c.Root = isolation, filepath.Join(disk, "runtime") })
			box, _ := n.sandbox()
			id := n.in(box, sh("exit 3"))
			n.ended(id)
			fill(t, filepath.Join(n.cfg.Root, "containers", id))
			must(t, n.StopPodSandbox(ctx, box))
			if s := n.status(id); s.ExitCode != 3 {
				t.Errorf("the container is %v", s)
			}
			must(t, n.RemovePodSandbox(ctx, box))
			var now unix.Statfs_t
			must(t, unix.Statfs(disk, &now))
			if now.Ffree < 300 {
				t.Errorf("%d inodes are free", now.Ffree)
			}
		})
	}
}
