package volume

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func TestHostPathTypes(t *testing.T) {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "file"), "x")
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, tc := range []struct{ typ, path, err string }{
		{"", "file", ""}, {"", "none", ""},
		{"Directory", ".", ""}, {"Directory", "file", "is not a directory"}, {"Directory", "none", "does not exist"},
		{"DirectoryOrCreate", "made/twice", ""}, {"DirectoryOrCreate", "made/twice", ""}, {"DirectoryOrCreate", "file", "is not a directory"},
		{"File", "file", ""}, {"File", ".", "is not a file"},
		{"FileOrCreate", "made/file", ""}, {"FileOrCreate", "made/file", ""}, {"FileOrCreate", "no/such/dir", "no such file"}, {"FileOrCreate", "made", "is not a file"},
		{"Socket", "socket", ""}, {"Socket", "file", "is not a socket file"},
		{"CharDevice", "/dev/null", ""}, {"CharDevice", "file", "is not a character device"},
		{"BlockDevice", "/dev/null", "is not a block device"},
		{"Other", "file", "unknown hostPath type"},
		{"Directory", "file/x", "not a directory"},
	} {
		path := tc.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		r := newRig(t)
		pod := podWith(t, `[{name: h, hostPath: {path: `+path+`, type: "`+tc.typ+`"}}]`)
		t.Run(tc.typ+" "+tc.path, func(t *testing.T) {
			expectError(t, r.Prepare(t.Context(), pod), tc.err)
		})
	}
}

func TestHostPathPolicy(t *testing.T) {
	dir := tempDir(t)
	write(t, filepath.Join(dir, "allowed/file"), "x")
	if err := os.Symlink("/etc", filepath.Join(dir, "allowed/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nothing", filepath.Join(dir, "allowed/dangling")); err != nil {
		t.Fatal(err)
	}
	var asked HostAccess
	r := newRig(t, func(o *Options) {
		o.AllowHostPath = func(a HostAccess) error {
			if filepath.Dir(a.Path) == filepath.Join(dir, "allowed") {
				asked = a // not of those above it, which pinHostPath wants to know of
			}
			if strings.HasPrefix(a.Path, filepath.Join(dir, "allowed")+"/") {
				return nil
			}
			return errors.New("not below allowed")
		}
	})
	for path, want := range map[string]string{
		"allowed/file":             "",
		"allowed/none/of/it":       "",
		"allowed/../secret":        "not below allowed",
		"allowed/link":             `hostPath "/etc" is not allowed`,
		"allowed/link/none/of/it":  `hostPath "/etc/none/of/it" is not allowed`,
		"allowed/dangling":         "is a link to nothing",
		"allowed/dangling/further": "is a link to nothing",
	} {
		pod := podWith(t, `[{name: h, hostPath: {path: "`+dir+"/"+path+`"}}]`)
		err := r.Prepare(t.Context(), pod)
		expectError(t, err, want)
		_, _, pathErr := r.HostPath(pod, &corev1.VolumeMount{Name: "h"})
		expectError(t, pathErr, want)
		if strings.Contains(want, "allowed") {
			expect(t, "permanence", errdefs.IsPermanent(err), true)
		}
	}
	pod := podWith(t, `[{name: h, hostPath: {path: relative}}]`)
	expectError(t, r.Prepare(t.Context(), pod), "is not absolute")
	pod = podWith(t, `[{name: h, hostPath: {path: `+dir+`/allowed/file}}]`)
	path, readOnly, err := r.HostPath(pod, &corev1.VolumeMount{Name: "h", ReadOnly: true})
	expectError(t, err, "")
	expect(t, "the path", path, filepath.Join(dir, "allowed/file"))
	expect(t, "readOnly", readOnly, true)
	expect(t, "who asked", asked, HostAccess{Pod: pod, Volume: "h", Path: path})

	var unsupported Unsupported
	err = newRig(t, func(o *Options) { o.AllowHostPath = nil }).Prepare(t.Context(), pod)
	if !errors.As(err, &unsupported) || !errdefs.IsPermanent(err) {
		t.Errorf("without a policy the error is %v", err)
	}
}
