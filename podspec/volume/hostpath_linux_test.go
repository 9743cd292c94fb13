package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// below is a policy that allows a directory with all that is in it.
func below(dir string) func(HostAccess) error {
	return func(a HostAccess) error {
		if rel, err := filepath.Rel(dir, a.Path); err != nil || !filepath.IsLocal(rel) {
			return errors.New("not allowed")
		}
		return nil
	}
}

// A path below an allowed directory is given as a mount of its own, which a pod that
// may write to the directory cannot lead elsewhere.
func TestHostPathCannotBeSwapped(t *testing.T) {
	needRoot(t)
	allowed, outside := tempDir(t), tempDir(t)
	write(t, filepath.Join(allowed, "dir/file"), "allowed")
	write(t, filepath.Join(allowed, "single"), "allowed")
	write(t, filepath.Join(outside, "file"), "secret")
	bind(t, outside, filepath.Join(allowed, "dir/mounted"))
	r := newRig(t, func(o *Options) { o.AllowHostPath = below(allowed) })
	pod := podWith(t, `[{name: d, hostPath: {path: `+allowed+`/dir}}, {name: s, hostPath: {path: `+allowed+`/single, type: File}},
  {name: all, hostPath: {path: `+allowed+`}}, {name: new, hostPath: {path: `+allowed+`/new/dir}}]`)
	r.prepare(t, pod)
	path := r.path(t, pod, "d")
	expect(t, "the path is below the volumes", strings.HasPrefix(path, r.root), true)
	expect(t, "the path another time", r.path(t, pod, "d"), path)
	if err := os.Symlink(".", filepath.Join(allowed, "dir/itself")); err != nil {
		t.Fatal(err)
	}
	for _, subPath := range []string{".", "./", "itself"} {
		whole, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "d", SubPath: subPath})
		expectError(t, err, "")
		expect(t, "the path with subPath "+subPath, whole, path)
	}
	expect(t, "what is mounted in it", content(t, filepath.Join(path, "mounted/file")), "secret")
	expect(t, "the path of a file", content(t, r.path(t, pod, "s")), "allowed")
	expect(t, "the path that is allowed itself", r.path(t, pod, "all"), allowed)
	expect(t, "a path that was made", strings.HasPrefix(r.path(t, pod, "new"), r.root) && isThere(filepath.Join(allowed, "new/dir")), true)
	if err := errors.Join(os.Rename(filepath.Join(allowed, "dir"), filepath.Join(allowed, "was")), os.Symlink(outside, filepath.Join(allowed, "dir"))); err != nil {
		t.Fatal(err)
	}
	expect(t, "the file", content(t, filepath.Join(path, "file")), "allowed")
	_, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "d"})
	expectError(t, err, "not allowed")
	access := HostAccess{Pod: pod, Volume: "d", Path: filepath.Join(allowed, "dir")}
	for _, swapped := range []string{"dir", "dir/inner"} { // after it was checked
		access.Path = filepath.Join(allowed, swapped)
		_, err = r.pinHostPath(access, &corev1.VolumeMount{})
		expectError(t, err, "became a link")
		expectError(t, createDirectory(filepath.Join(access.Path, "made")), "became a link")
		expectError(t, createFile(filepath.Join(access.Path, "made")), "became a link")
		_, err = locate(access.Path, "made")
		expectError(t, err, "became a link")
	}
	expect(t, "what was made outside", isThere(filepath.Join(outside, "made")), false)
	expectError(t, r.Teardown(pod.UID), "")
	expect(t, "the host's file", content(t, filepath.Join(allowed, "was/file")), "allowed")
	expect(t, "the host's mount", content(t, filepath.Join(allowed, "was/mounted/file")), "secret")
}

// There is no way around it for a process that cannot mount, unless the runtime
// follows no links.
func TestHostPathsNeedMountsOrARuntimeThatFollowsNoLinks(t *testing.T) {
	needRoot(t)
	allowed := tempDir(t)
	write(t, filepath.Join(allowed, "dir/file"), "x")
	pod := podWith(t, `[{name: d, hostPath: {path: `+allowed+`/dir}}, {name: all, hostPath: {path: `+allowed+`}}]`)
	mounts := []corev1.VolumeMount{{Name: "d"}, {Name: "d", SubPath: "."}, {Name: "d", SubPath: "x"}, {Name: "all", SubPath: "dir"}}
	policy := func(o *Options) { o.AllowHostPath = below(allowed) }
	for name, r := range map[string]*rig{"may not mount": newRig(t, policy), "makes no mounts": newRig(t, policy, func(o *Options) { o.NoMounts = true })} {
		withoutMounting(t, func() {
			r.prepare(t, pod)
			for i := range mounts {
				if path, _, err := r.HostPath(pod, &mounts[i]); err == nil {
					t.Errorf("a process that %s has %s at %v", name, path, mounts[i])
				}
			}
		})
	}
	noLinks := newRig(t, policy, func(o *Options) { o.NoLinksFollowed = true })
	allOfHost := newRig(t, func(o *Options) { o.NoMounts = true }) // there is nowhere else to lead to
	for _, r := range []*rig{noLinks, allOfHost} {
		withoutMounting(t, func() {
			r.prepare(t, pod)
			for i, want := range []string{"dir", "dir", "dir/x", "dir"} {
				path, _, err := r.HostPath(pod, &mounts[i])
				expectError(t, err, "")
				expect(t, "the path", path, filepath.Join(allowed, want))
			}
		})
	}
}
