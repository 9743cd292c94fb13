package volume

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestLocate(t *testing.T) {
	outside := tempDir(t)
	write(t, filepath.Join(outside, "secret"), "x")
	base := tempDir(t)
	dir := filepath.Join(base, "volume")
	write(t, filepath.Join(dir, "d/file"), "x")
	write(t, dir+"-twin/file", "x")
	for link, target := range map[string]string{
		"in": "d", "d/up": "..", "d/in": "../d/./file", "chain": "in/in", "new": "d/made/here",
		"absolute": dir + "/d", "itself": dir, "twin": dir + "-twin", "sneaky": dir + "/../volume-twin",
		"out": outside, "up": "..", "upup": "d/../../volume-twin", "d/upup": "../..", "loop": "loop", "proc": "/proc/self/root",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for subPath, want := range map[string]string{
		"d": "d", "d/file": "d/file", "./d//file": "d/file", ".": ".", "in/file": "d/file", "d/up/d": "d", "d/in": "d/file",
		"chain": "d/file", "absolute/file": "d/file", "itself": ".", "itself/d": "d", "new/x": "d/made/here/x", "made/a/b": "made/a/b",
		"out": "", "out/secret": "", "up": "", "upup": "", "d/upup": "", "twin/file": "", "sneaky/file": "", "loop": "", "proc/etc": "",
		"d/file/x": "", "..": "", "d/../d": "", "/d": "", "a\x00": "",
	} {
		t.Run(subPath, func(t *testing.T) {
			got, err := locate(dir, subPath)
			expect(t, "the path", got, want)
			expect(t, "a failure", err != nil, want == "")
			if want == "" {
				return
			}
			file, err := openBeneath(dir, got)
			if err != nil {
				t.Fatal(err)
			}
			_ = file.Close()
		})
	}
	if isThere(filepath.Join(outside, "x")) || isThere(filepath.Join(base, "x")) {
		t.Error("something was made outside of the volume")
	}
	_, err := locate(filepath.Join(dir, "none"), "x")
	expectError(t, err, "no such file")
}

// A link that appears after the path was checked is not followed.
func TestOpenBeneathFollowsNothing(t *testing.T) {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "d/file"), "x")
	for link, target := range map[string]string{"file": "d/file", "dir": "d"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"file", "dir", "dir/file", "none"} {
		if file, err := openBeneath(dir, path); err == nil {
			_ = file.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if _, err := openBeneath(filepath.Join(dir, "none"), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
}

func TestSubPaths(t *testing.T) {
	needRoot(t)
	r := newRig(t)
	r.objects.setConfigMap("cm", map[string]string{"a": "1"})
	pod := podWith(t, `[{name: e}, {name: cm, configMap: {name: cm}}]`)
	r.prepare(t, pod)
	at := func(volume, subPath string) string {
		t.Helper()
		path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: volume, SubPath: subPath})
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	dir := at("e", "x/y")
	if !strings.HasPrefix(dir, filepath.Join(r.root, "pods/uid-1/volume-subpaths/e/")) {
		t.Errorf("the path is %s", dir)
	}
	expect(t, "the path, again", at("e", "x/y"), dir)
	write(t, filepath.Join(dir, "file"), "x")
	expect(t, "the file in the volume", content(t, filepath.Join(r.path(t, pod, "e"), "x/y/file")), "x")

	// The mount stays what it was, regardless of what becomes of the path.
	volume := r.path(t, pod, "e")
	if err := errors.Join(os.Rename(filepath.Join(volume, "x"), filepath.Join(volume, "z")), os.Symlink("/etc", filepath.Join(volume, "x"))); err != nil {
		t.Fatal(err)
	}
	expect(t, "the file in the mount", content(t, filepath.Join(dir, "file")), "x")
	_, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "e", SubPath: "x/y"})
	expectError(t, err, `failed to prepare subPath for volumeMount "e": subPath "x/y": a link leads out of the volume`)

	// A file of a ConfigMap stays until the container starts again.
	file := at("cm", "a")
	r.objects.setConfigMap("cm", map[string]string{"a": "2"})
	if _, err := r.Refresh(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	expect(t, "the file", content(t, file), "1")
	expect(t, "the path of the file for the next container", at("cm", "a"), file)
	expect(t, "the file for the next container", content(t, file), "2")

	// A missing one becomes a directory, and a file when there is one.
	expect(t, "a missing key", ls(t, at("cm", "b")), "0777 0:0")
	r.objects.setConfigMap("cm", map[string]string{"b": "3"})
	r.prepare(t, pod)
	expect(t, "the key that has come", content(t, at("cm", "b")), "3")

	expect(t, "a subPathExpr that was expanded", func() string {
		path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "cm", SubPathExpr: "b"})
		expectError(t, err, "")
		return path
	}(), at("cm", "b"))
	expect(t, "the whole volume", at("e", "."), volume)
	if err := r.Teardown(pod.UID); err != nil {
		t.Fatal(err)
	}
	expect(t, "the pod's directory", isThere(filepath.Join(r.root, "pods/uid-1")), false)
}

// Without mounts a path without links is what there is.
func TestSubPathsWithoutMounts(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoMounts = true })
	pod := podWith(t, `[{name: e}]`)
	r.prepare(t, pod)
	volume := r.path(t, pod, "e")
	if err := errors.Join(os.Mkdir(filepath.Join(volume, "d"), 0o755), os.Symlink("d", filepath.Join(volume, "link"))); err != nil {
		t.Fatal(err)
	}
	path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "e", SubPath: "link/x"})
	expectError(t, err, "")
	expect(t, "the path", path, filepath.Join(volume, "d/x"))
}

func TestSubPathErrors(t *testing.T) {
	r := newRig(t)
	pod := podWith(t, `[{name: e}, {name: h, hostPath: {path: `+tempDir(t)+`}}]`)
	_, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "e"})
	expectError(t, err, "Prepare comes first")
	r.prepare(t, pod)
	for _, path := range []string{"..", "a/../../b", "/etc"} {
		_, _, err = r.HostPath(pod, &corev1.VolumeMount{Name: "h", SubPath: path})
		expectError(t, err, "must be relative and have no '..'")
		expect(t, "permanence", errdefs.IsPermanent(err), true)
	}
	_, _, err = r.HostPath(pod, &corev1.VolumeMount{Name: "none"})
	expectError(t, err, "no such volume")
}

// A socket can be mounted; it cannot be opened.
func TestSubPathOfSocket(t *testing.T) {
	needRoot(t)
	r := newRig(t)
	pod := podWith(t, `[{name: e}]`)
	r.prepare(t, pod)
	listener, err := net.Listen("unix", filepath.Join(r.path(t, pod, "e"), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "e", SubPath: "s"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		t.Errorf("there is %v, %v", info, err)
	}
}

// A container that changes its volume all the time never gets out of it.
func TestSubPathRace(t *testing.T) {
	needRoot(t)
	outside := tempDir(t)
	write(t, filepath.Join(outside, "x/secret"), "secret")
	r := newRig(t)
	pod := podWith(t, `[{name: e}]`)
	r.prepare(t, pod)
	volume := r.path(t, pod, "e")
	done := make(chan struct{})
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = os.Remove(filepath.Join(volume, "d"))
				_ = os.MkdirAll(filepath.Join(volume, "d/x"), 0o755)
				_ = os.RemoveAll(filepath.Join(volume, "d"))
				_ = os.Symlink(outside, filepath.Join(volume, "d"))
			}
		}
	})
	got := 0
	for range 500 {
		path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "e", SubPath: "d/x"})
		if err != nil {
			continue
		}
		got++
		if isThere(filepath.Join(path, "secret")) {
			t.Fatal("a container got out of its volume")
		}
	}
	close(done)
	attacker.Wait()
	t.Logf("%d of 500 attempts gave a path", got)
}
