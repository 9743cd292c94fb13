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

// How a container ends is known also if the disk has become full since its start: what is
// written of it has its place from then on.
func TestAnEndOnAFullDiskIsKnownAsRoot(t *testing.T) {
	asRoot(t)
	for _, isolation := range isolations() {
		for what, use := range map[string]func(*testing.T, string){"inodes": fill, "blocks": fillBlocks} {
			t.Run(isolation+" "+what, func(t *testing.T) {
				disk := tempDir(t)
				must(t, unix.Mount("disk", disk, "tmpfs", 0, "mode=711,size=8m,nr_inodes=500"))
				t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
				n := newNode(t, func(c *runtime.Config) { c.Isolation, c.Root = isolation, filepath.Join(disk, "runtime") })
				id := n.start(sh("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"))
				n.waitLog(id, "ready")
				full := filepath.Join(disk, "full")
				must(t, os.Mkdir(full, 0o700))
				use(t, full)
				must(t, n.StopContainer(ctx, id, 600))
				if s := n.status(id); s.ExitCode != 3 || s.Reason != "Error" {
					t.Errorf("the container is %v", s)
				}
				n.reopen()
				if s := n.status(id); s.ExitCode != 3 || s.Reason != "Error" {
					t.Errorf("after a restart the container is %v", s)
				}
			})
		}
	}
}

// fillBlocks uses up all room of a file system, by a file in a directory.
func fillBlocks(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "large"))
	must(t, err)
	for err == nil {
		_, err = file.Write(make([]byte, os.Getpagesize()))
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
