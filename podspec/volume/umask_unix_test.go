//go:build unix

package volume

import (
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Modes are what was asked for, regardless of the umask of the process.
func TestUmask(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoMounts = true })
	old := syscall.Umask(0o777)
	syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := tempDir(t)
	mustWrite(t, dir, Files{"d/a": {Mode: 0o666}}, nil)
	expect(t, "a file", ls(t, filepath.Join(dir, "d/a")), "0666 0:0")
	expect(t, "its directory", ls(t, filepath.Join(dir, "d")), "0755 0:0")

	host := filepath.Join(dir, "host")
	pod := podWith(t, `[{name: e}, {name: dir, hostPath: {path: `+host+`, type: DirectoryOrCreate}}, {name: file, hostPath: {path: `+host+`-f, type: FileOrCreate}}]`)
	r.prepare(t, pod)
	expect(t, "an emptyDir", ls(t, r.path(t, pod, "e")), "0777 0:0")
	expect(t, "a created directory", ls(t, host), "0755 0:0")
	expect(t, "a created file", ls(t, host+"-f"), "0644 0:0")
	path, _, err := r.HostPath(pod, &corev1.VolumeMount{Name: "e", SubPath: "x/y"})
	expectError(t, err, "")
	expect(t, "a subPath", ls(t, path), "0777 0:0")
	expect(t, "its parent", ls(t, filepath.Dir(path)), "0777 0:0")
}
