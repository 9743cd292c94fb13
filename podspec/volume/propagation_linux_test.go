package volume

import (
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// What the host mounts in a directory while a pod has a part of it shows in the pod's mounts, and stays
// on the host when these go: if its volumes are removed, and if a container gets another directory.
func TestUnmountingKeepsMountsOfTheHost(t *testing.T) {
	needRoot(t)
	both := ptr.To(corev1.MountPropagationBidirectional)
	clear := func(_ *rig, _ *corev1.Pod, target string) error { return clearTarget(target) }
	teardown := func(r *rig, pod *corev1.Pod, _ string) error { return r.Teardown(pod.UID) }
	for name, tc := range map[string]struct {
		mount corev1.VolumeMount
		at    []string
		end   func(*rig, *corev1.Pod, string) error
	}{
		"teardown":               {at: []string{"disk", "disk/inner", "disk2"}, end: teardown},
		"teardown over it all":   {at: []string{".", "disk"}, end: teardown},
		"teardown Bidirectional": {mount: corev1.VolumeMount{MountPropagation: both}, at: []string{"disk", "disk/inner", "disk2"}, end: teardown},
		"clear":                  {at: []string{"disk", "disk/inner"}, end: clear},
		"clear over it all":      {at: []string{"."}, end: clear},
		"clear Bidirectional":    {mount: corev1.VolumeMount{MountPropagation: both}, at: []string{"disk", "disk/inner"}, end: clear},
	} {
		t.Run(name, func(t *testing.T) {
			host, r := sharedTmpfs(t), newRig(t)
			write(t, filepath.Join(host, "a/file"), "x")
			pod := podWith(t, `[{name: h, hostPath: {path: `+host+`}}]`)
			r.prepare(t, pod)
			tc.mount.Name, tc.mount.SubPath = "h", "a"
			target, _, err := r.HostPath(pod, &tc.mount)
			expectError(t, err, "")
			expect(t, "the pod's file", content(t, filepath.Join(target, "file")), "x")
			for i, at := range tc.at {
				disk := filepath.Join(host, "a", at)
				write(t, filepath.Join(disk, "made"), "")
				if err := mountTmpfs(disk, nil); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(disk, "file"), strconv.Itoa(i))
				expect(t, "the file in the pod's "+at, content(t, filepath.Join(target, at, "file")), strconv.Itoa(i))
			}
			expectError(t, tc.end(r, pod, target), "")
			expect(t, "the pod's mount", isThere(target), false)
			for i, at := range tc.at {
				expect(t, "the file in the host's "+at, content(t, filepath.Join(host, "a", at, "file")), strconv.Itoa(i))
			}
		})
	}
}

// A container whose mounts are to show on the host has a mount for that, though another
// one has the same directory.
func TestSubPathsOfBidirectionalMountsAreShared(t *testing.T) {
	needRoot(t)
	host, r := sharedTmpfs(t), newRig(t)
	write(t, filepath.Join(host, "a/disk/x"), "")
	pod := podWith(t, `[{name: h, hostPath: {path: `+host+`}}]`)
	r.prepare(t, pod)
	at := func(propagation corev1.MountPropagationMode) string {
		t.Helper()
		path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "h", SubPath: "a", MountPropagation: &propagation})
		expectError(t, err, "")
		return path
	}
	one := at(corev1.MountPropagationHostToContainer)
	both := at(corev1.MountPropagationBidirectional)
	if err := mountTmpfs(filepath.Join(both, "disk"), nil); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(both, "disk/file"), "x")
	expect(t, "the file on the host", content(t, filepath.Join(host, "a/disk/file")), "x")
	expect(t, "the file in the other container", content(t, filepath.Join(one, "disk/file")), "x")
}

// sharedTmpfs returns a directory whose mounts propagate, as those of most hosts do.
func sharedTmpfs(t *testing.T) string {
	t.Helper()
	dir := tempDir(t) + "/host"
	write(t, filepath.Join(dir, "x"), "")
	if err := mountTmpfs(dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}
