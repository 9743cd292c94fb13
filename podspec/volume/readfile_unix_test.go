//go:build unix

package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// A pipe, which would wait for a writer, is refused at once, and a device without being opened, which
// alone may do something. So are paths that lead out of the volume and volumes of other kinds.
func TestReadFileRefuses(t *testing.T) {
	needRoot(t)
	m, err := New(Options{Root: t.TempDir(), NoMounts: true})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
		},
		Containers: []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
	}}
	pod.UID = "uid"
	dir, err := m.makeParents(pod, &pod.Spec.Volumes[0])
	if err == nil {
		err = makeDirectory(dir, nil)
	}
	if err == nil {
		err = unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666)
	}
	if err == nil { // of no driver, and so an error to open
		err = unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(511, 77)))
	}
	if err == nil {
		err = errors.Join(os.Symlink("device", filepath.Join(dir, "link")), os.Symlink("/etc/hosts", filepath.Join(dir, "out")))
	}
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[[2]string]string{
		{"data", "pipe"}:       "no regular file",
		{"data", "device"}:     "no regular file",
		{"data", "link"}:       "no regular file",
		{"data", "out"}:        "a link leads out of the volume",
		{"data", "../../x"}:    "must be relative",
		{"data", "/etc/hosts"}: "must be relative",
		{"host", "etc/hosts"}:  "no emptyDir",
		{"none", "x"}:          "no emptyDir",
	} {
		if _, err := m.ReadFile(pod, where[0], where[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: the error is %v, want one of %q", where, err, want)
		}
	}
}
