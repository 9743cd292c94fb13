package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
)

// bind mounts source on a new directory target.
func bind(t *testing.T, source, target string) {
	t.Helper()
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := bindMount(dir, target); err != nil {
		t.Fatal(err)
	}
}

func TestTeardown(t *testing.T) {
	needRoot(t)
	r, host := newRig(t), tempDir(t)
	fill(r)
	write(t, filepath.Join(host, "precious"), "x")
	pod := podWith(t, allKinds+`- {name: h, hostPath: {path: `+host+`}}`)
	r.prepare(t, pod)
	for _, volume := range []string{"e", "h", "m", "s"} {
		if _, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: volume, SubPath: "sub"}); err != nil {
			t.Fatal(err)
		}
	}
	e := r.path(t, pod, "e")
	bind(t, host, filepath.Join(e, "by a container \\ of the pod")) // propagated by a privileged one
	bind(t, host, filepath.Join(r.path(t, pod, "m"), "in memory"))
	if err := errors.Join(os.Symlink(host, filepath.Join(e, "link")), os.Mkdir(filepath.Join(e, "locked"), 0)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(e, "no\xfftext/no\xfftext"), "x")
	write(t, filepath.Join(r.root, "pods/uid-1/pod.json"), "{}")
	if got := r.Orphans(); !slices.Equal(got, []types.UID{"uid-1"}) {
		t.Errorf("the pods on disk are %v", got)
	}

	fresh, err := New(Options{Root: r.root, Objects: r.objects}) // after a restart
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be repeated
		if err := fresh.Teardown(pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "the file on the host", content(t, filepath.Join(host, "precious")), "x")
	expect(t, "the subPath on the host", isThere(filepath.Join(host, "sub")), true)
	expect(t, "what is not ours in the pod's directory", content(t, filepath.Join(r.root, "pods/uid-1/pod.json")), "{}")
	expect(t, "the volumes", isThere(filepath.Join(r.root, "pods/uid-1/volumes")), false)
	expect(t, "the pods on disk", len(r.Orphans()), 0)
	if err := os.Remove(filepath.Join(r.root, "pods/uid-1/pod.json")); err != nil {
		t.Fatal(err)
	}
	expectError(t, fresh.Teardown(pod.UID), "")
	expect(t, "the pod's directory", isThere(filepath.Join(r.root, "pods/uid-1")), false)
	expectError(t, fresh.Teardown("never-seen"), "")
}

// A tree that is deeper than any path is torn down.
func TestTeardownOfADeepTree(t *testing.T) {
	r := newRig(t)
	pod := podWith(t, `[{name: e, emptyDir: {}}]`)
	r.prepare(t, pod)
	dir, err := os.OpenRoot(r.path(t, pod, "e"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if err := dir.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := dir.OpenRoot("d")
		if err = errors.Join(err, dir.Close()); err != nil {
			t.Fatal(err)
		}
		dir = next
	}
	if err := errors.Join(dir.Close(), r.Teardown(pod.UID)); err != nil {
		t.Fatal(err)
	}
	expect(t, "the pod's directory", isThere(filepath.Join(r.root, "pods", string(pod.UID))), false)
}

// What cannot be unmounted is not removed, nor is anything else.
func TestTeardownRefusesMounts(t *testing.T) {
	needRoot(t)
	dir, host := tempDir(t), tempDir(t)
	write(t, filepath.Join(host, "precious"), "x")
	bind(t, host, filepath.Join(dir, "d"))
	nothing := func(string) (bool, error) { return true, nil }
	expectError(t, unmountBelow(dir, nothing), "is still mounted")
	fails := func(string) (bool, error) { return false, errors.New("no permission") }
	expectError(t, unmountBelow(dir, fails), "no permission")

	// Another file system that shows up after all is not entered.
	if err := mountTmpfs(filepath.Join(dir, "d"), []string{"size=64k"}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "d/precious"), "x")
	expectError(t, filetree.Remove(dir, "d"), "is on another file system")
	expect(t, "the file", content(t, filepath.Join(dir, "d/precious")), "x")
}

// A mount that somebody works in goes all the same.
func TestUnmountBusy(t *testing.T) {
	needRoot(t)
	dir := tempDir(t)
	if err := mountTmpfs(dir, nil); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, want := range []bool{true, false} {
		was, err := unmount(dir)
		expectError(t, err, "")
		expect(t, "a mount", was, want)
	}
	_, err = unmount(filepath.Join(dir, "none"))
	expectError(t, err, "")
}

// A pod that shares a directory may make one above a mount a link meanwhile.
func TestUnmountFollowsNoLinks(t *testing.T) {
	needRoot(t)
	host, dir := tempDir(t), tempDir(t)
	write(t, filepath.Join(host, "disk/file"), "x")
	bind(t, host, filepath.Join(host, "disk"))
	if err := os.Symlink(host, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	_, err := unmount(filepath.Join(dir, "link/disk"))
	expectError(t, err, "became a link")
	expectError(t, makeSlave(filepath.Join(dir, "link/disk")), "became a link")
	expect(t, "the host's mount", isThere(filepath.Join(host, "disk/disk")), true)
}

func TestMountsBelow(t *testing.T) {
	text := `22 27 0:21 / /proc rw - proc proc rw
30 27 0:21 / /r/pods/a rw - tmpfs tmpfs rw
31 27 0:21 / /r/pods/a/x rw,relatime shared:1 - tmpfs tmpfs rw
32 27 0:21 / /r/pods/ab/x rw - tmpfs tmpfs rw
33 27 0:21 / /r/pods/a/b\040c\134\011d\9 rw - tmpfs tmpfs rw
short
`
	if got, want := mountsBelow(text, "/r/pods/a"), []string{"/r/pods/a/x", "/r/pods/a/b c\\\td\\9"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}
