package volume

import (
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// withoutMounting runs f on a thread that may not mount.
func withoutMounting(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, less [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
	less = all
	less[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	if err := unix.Capset(&header, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&header, &all[0]); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// A process that may not mount keeps all in plain directories.
func TestWithoutTheRightToMount(t *testing.T) {
	needRoot(t)
	r := newRig(t)
	fill(r)
	pod := podWith(t, allKinds)
	withoutMounting(t, func() {
		r.prepare(t, pod)
		expect(t, "a secret", content(t, filepath.Join(r.path(t, pod, "s"), "key")), "x")
		path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "m", SubPath: "a/b"})
		expectError(t, err, "")
		expect(t, "a subPath", path, filepath.Join(r.path(t, pod, "m"), "a/b"))
		points, err := mountPoints(r.root)
		expectError(t, err, "")
		expect(t, "the number of mounts", len(points), 0)
		expectError(t, r.Teardown(pod.UID), "")
	})
	r.prepare(t, pod)
	withoutMounting(t, func() {
		expectError(t, r.Teardown(pod.UID), "operation not permitted")
		expect(t, "the secret", content(t, filepath.Join(r.path(t, pod, "s"), "key")), "x")
	})
}
