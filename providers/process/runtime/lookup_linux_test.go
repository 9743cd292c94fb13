package runtime_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unreachable mounts a file system whose server is gone: nothing in it can be looked up.
func unreachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	err = unix.Mount("fuse", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server))
	must(t, unix.Close(server))
	must(t, err)
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// A program that cannot be looked up need not be missing: the container is created later, and does not
// fail for good.
func TestAProgramThatCannotBeLookedUpAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	dir := unreachable(t)
	box, boxConfig := n.sandbox()
	inPath := func(command ...string) *runtimeapi.ContainerConfig {
		config := containerConfig(command...)
		config.Envs = []*runtimeapi.KeyValue{{Key: "PATH", Value: []byte(dir + ":/usr/bin:/bin")}}
		return config
	}
	for name, config := range map[string]*runtimeapi.ContainerConfig{"by its path": containerConfig(filepath.Join(dir, "program")), "in PATH": inPath("vk-no-such-program")} {
		if _, err := n.CreateContainer(ctx, box, config, boxConfig); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: the creation returns %v", name, err)
		}
	}
	// One that is found elsewhere is run.
	id := n.start(inPath("sh", "-c", "exit 7"))
	if s := n.ended(id); s.ExitCode != 7 {
		t.Errorf("%v", s)
	}
	if _, _, err := n.ExecSync(ctx, n.start(sh("sleep 1000")), []string{filepath.Join(dir, "program")}, 0); status.Code(err) != codes.Unavailable {
		t.Errorf("a command in a container returns %v", err)
	}
}
