package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestSetGroup(t *testing.T) {
	needRoot(t)
	dir, outside := tempDir(t), filepath.Join(tempDir(t), "outside")
	write(t, filepath.Join(dir, "d/f"), "x")
	write(t, filepath.Join(dir, "no\xfftext/f"), "x")
	write(t, outside, "x")
	for name, mode := range map[string]os.FileMode{"d/f": 0o600, "d": 0o700} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	set := func(group int64, policy *corev1.PodFSGroupChangePolicy) {
		t.Helper()
		expectError(t, SetGroup(t.Context(), dir, group, policy), "")
	}
	set(2000, nil)
	expect(t, "the volume", ls(t, dir), "2775 0:2000")
	expect(t, "a directory", ls(t, filepath.Join(dir, "d")), "2770 0:2000")
	expect(t, "a file", ls(t, filepath.Join(dir, "d/f")), "0660 0:2000")
	expect(t, "a file with a strange name", ls(t, filepath.Join(dir, "no\xfftext/f")), "0664 0:2000")
	expect(t, "what a link leads to", ls(t, outside), "0644 0:0")
	info, _ := os.Lstat(filepath.Join(dir, "link"))
	_, gid, _ := ownerOf(info)
	expect(t, "the group of a link", gid, 2000)

	if err := os.Chown(filepath.Join(dir, "d/f"), 5, 5); err != nil {
		t.Fatal(err)
	}
	set(2000, ptr.To(corev1.FSGroupChangeOnRootMismatch))
	expect(t, "a file, if the root is right", ls(t, filepath.Join(dir, "d/f")), "0660 5:5")
	set(2000, ptr.To(corev1.FSGroupChangeAlways))
	expect(t, "a file, with Always", ls(t, filepath.Join(dir, "d/f")), "0660 5:2000")
	set(2001, ptr.To(corev1.FSGroupChangeOnRootMismatch))
	expect(t, "a file, if the root has another group", ls(t, filepath.Join(dir, "d/f")), "0660 5:2001")
	if err := os.Chmod(dir, 0o2755); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(dir, 0o700)
	set(2001, ptr.To(corev1.FSGroupChangeOnRootMismatch))
	expect(t, "the volume, if the group could not write", ls(t, dir), "2770 0:2001")
	expectError(t, SetGroup(t.Context(), filepath.Join(dir, "none"), 1, nil), "apply fsGroup 1: ")
}

// A volume that a pod has made too deep is not given to a group.
func TestSetGroupOfADeepVolume(t *testing.T) {
	needRoot(t)
	dir, name := tempDir(t), strings.Repeat("d", 200)
	root, err := os.OpenRoot(dir)
	for range 25 {
		expectError(t, err, "")
		expectError(t, root.Mkdir(name, 0o755), "")
		above := root
		root, err = root.OpenRoot(name)
		_ = above.Close()
	}
	expectError(t, err, "")
	_ = root.Close()
	expectError(t, SetGroup(t.Context(), dir, 2000, nil), "a path in it is longer than 4096 bytes")
	expect(t, "the volume", ls(t, dir), "0755 0:0")
}
