package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// A container that says what to run gets that, one that does not gets what its
// image stands for, by the rules of container images.
func TestImagesStandForCommands(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for name, test := range map[string]struct {
			image         string
			command, args []string
			want          string
		}{
			"nothing":     {"example.com/tool:v1", nil, nil, "tool default v=image in /tmp\n"},
			"digest":      {"example.com/tool@sha256:00", nil, nil, "tool default v=image in /tmp\n"},
			"args":        {"example.com/tool:v1", nil, []string{"other"}, "tool other v=image in /tmp\n"},
			"command":     {"example.com/tool:v1", []string{"printf", `%s`, "own"}, nil, "own"},
			"a tag":       {"example.com/tags:v1", nil, nil, "v1\n"},
			"first match": {"example.com/tags:v2", nil, nil, "all\n"},
		} {
			config := containerConfig(test.command...)
			config.Image.Image, config.Args = test.image, test.args
			if got := n.outputOf(config); got != test.want {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
		config := containerConfig()
		config.Image.Image, config.WorkingDir = "example.com/tool:v1", "/"
		config.Envs = []*runtimeapi.KeyValue{{Key: "V", Value: []byte("own")}}
		if got := n.outputOf(config); got != "tool default v=own in /\n" {
			t.Errorf("with an environment and a directory of its own: %q", got)
		}
		for _, image := range []string{"example.com/tool/other:v1", "example.com/app:v1"} {
			box, _ := n.sandbox()
			config := containerConfig()
			config.Image.Image = image
			if _, err := n.CreateContainer(ctx, box, config, nil); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), image) || !strings.Contains(err.Error(), "images") {
				t.Errorf("%s stands for nothing: %v", image, err)
			}
		}
	}, func(c *runtime.Config) {
		c.Images = []runtime.Image{
			{Name: "example.com/tool", Command: []string{"sh", "-c", `echo tool $0 v=$V in $PWD`}, Args: []string{"default"},
				Environment: map[string]string{"V": "image"}, WorkingDir: "/tmp"},
			{Name: "example.com/tags:v1", Args: []string{"echo", "v1"}},
			{Name: "*/tags:*", Args: []string{"echo", "all"}},
			{Name: "example.com/tags", Args: []string{"echo", "never"}},
		}
	})
}

// What an image stands for is the operator's word: it needs no other permission.
// Everything else does.
func TestImagesUsersAndFilesAsRoot(t *testing.T) {
	asRoot(t)
	dir := tempDir(t)
	program := filepath.Join(dir, "program")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\nid -u; id -g; cat /data; echo more >>/data\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "data"), []byte("of the image\n"), 0o644))
	must(t, os.Chmod(filepath.Join(dir, "data"), 0o666))
	must(t, os.Symlink(program, filepath.Join(dir, "link")))
	n := newNode(t, func(c *runtime.Config) {
		c.Images = []runtime.Image{
			{Name: "example.com/app", Command: []string{"/program"}, User: "1234:5678",
				Files: map[string]string{"/program": filepath.Join(dir, "link"), "/data": filepath.Join(dir, "data")}},
			{Name: "example.com/gone", Files: map[string]string{"/data": filepath.Join(dir, "gone")}},
		}
	})
	ran := func(config *runtimeapi.ContainerConfig) string {
		t.Helper()
		id := n.start(config)
		n.ended(id)
		out, errOut := n.logs(id)
		return out + errOut
	}
	config := containerConfig()
	if got := ran(config); !strings.HasPrefix(got, "1234\n5678\nof the image\n") || !strings.Contains(got, "Read-only file system") {
		t.Errorf("%q", got)
	}
	config = containerConfig("/program")
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: filepath.Join(n.volume("data", "of the pod\n"), "data")}}
	if got := ran(config); !strings.HasPrefix(got, "1234\n5678\nof the pod\n") {
		t.Errorf("a volume at the path of a file: %q", got)
	}
	box, _ := n.sandbox()
	other := containerConfig("/program")
	other.Image.Image = "example.com/other"
	id, err := n.CreateContainer(ctx, box, other, nil)
	must(t, err)
	if err := n.StartContainer(ctx, id); err == nil || !strings.Contains(err.Error(), "no program /program") {
		t.Errorf("another image has the file: %v", err)
	}
	gone := sh("true")
	gone.Image.Image = "example.com/gone"
	if _, err := n.CreateContainer(ctx, box, gone, nil); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "/data of the image example.com/gone") {
		t.Errorf("a file that is not there: %v", err)
	}
	_, err = n.PullImage(ctx, &runtimeapi.ImageSpec{Image: "example.com/app:v1"}, nil, nil)
	must(t, err)
	answer, err := n.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: "example.com/app:v1"}, false)
	must(t, err)
	if uid := answer.GetImage().GetUid().GetValue(); uid != 1234 {
		t.Errorf("the image's user is %d", uid)
	}
	_, err = os.Stat("/program")
	if !os.IsNotExist(err) {
		t.Errorf("the file is on the machine: %v", err)
	}
}

func TestBadImages(t *testing.T) {
	root := tempDir(t)
	for says, image := range map[string]runtime.Image{
		`"": name`:                  {Command: []string{"true"}},
		`"[": name`:                 {Name: "["},
		`"a": user`:                 {Name: "a", User: "root"},
		`"a": workingDir`:           {Name: "a", WorkingDir: "tmp"},
		`"a": command`:              {Name: "a", Command: []string{""}},
		`"a": files: they need`:     {Name: "a", Files: map[string]string{"/a": "/bin/true"}},
		`"b": files: nothing`:       {Name: "b", Files: map[string]string{"/proc/a": "/bin/true"}},
		`"b": files: "bin/true" is`: {Name: "b", Files: map[string]string{"/a": "bin/true"}},
	} {
		isolation := runtime.IsolationNone
		if image.Name == "b" {
			if os.Geteuid() != 0 {
				continue
			}
			isolation = runtime.IsolationNamespaces
		}
		r, err := newRuntime(runtime.Config{Root: root, Isolation: isolation, Images: []runtime.Image{image}})
		if err == nil || !strings.Contains(err.Error(), "images: "+says) {
			t.Errorf("%s: %v", says, err)
			if err == nil {
				_ = r.Close(ctx)
			}
		}
	}
}
