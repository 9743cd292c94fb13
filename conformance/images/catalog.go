package main

import (
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	imageutils "k8s.io/kubernetes/test/utils/image"
)

// image is one image: layers and configuration.
type image struct {
	name   string
	layers []tree
	config v1.Config
}

// sources say where the programs are that images are made of.
type sources struct {
	bin        string // directory with what build.sh has built
	kubernetes string // directory of the module k8s.io/kubernetes
}

// pauseName is the name of the sandbox image that does not change with the
// version of Kubernetes.
const pauseName = "localhost/pause:latest"

const pathVariable = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// catalog lists the images, under the names by which the suite asks for them.
// Each stands for the one in k8s.io/kubernetes/test/images.
func catalog(s sources) ([]image, error) {
	busybox, err := s.base()
	if err != nil {
		return nil, err
	}
	agnhost, err := s.agnhost()
	if err != nil {
		return nil, err
	}
	glibc, err := programs(map[string]string{"bin/dig": "/usr/bin/dig", "bin/hostname": "/bin/hostname"})
	if err != nil {
		return nil, err
	}
	pause, nginx, nnp, kitten := tree{}, tree{}, tree{}, tree{}
	pause.file("pause", s.program("pause"), 0o755)
	nginx.file("usr/local/bin/nginx", s.program("nginx"), 0o755)
	nnp.file("usr/local/bin/nnp", s.program("nnp"), 0o6755) // as the test wants it: setuid
	kitten.text("data.json", "{\n  \"image\": \"kitten.jpg\"\n}\n")
	kitten.text("etc/os-release", "NAME=\"Alpine Linux\"\n") // the suite looks for this name

	agnhostConfig := v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
	webConfig := v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}}
	nginxConfig := v1.Config{Cmd: []string{"nginx"}}
	pauseConfig := v1.Config{User: "65535:65535", Entrypoint: []string{"/pause"}}

	list := []image{
		{suite(imageutils.Agnhost), []tree{busybox, agnhost}, agnhostConfig},
		{suite(imageutils.AgnhostPrev), []tree{busybox, agnhost}, agnhostConfig},
		{suite(imageutils.BusyBox), []tree{busybox}, v1.Config{Cmd: []string{"sh"}}},
		{suite(imageutils.GlibcDnsTesting), []tree{busybox, glibc}, v1.Config{Cmd: []string{"sh"}}},
		{suite(imageutils.Kitten), []tree{busybox, agnhost, kitten}, webConfig},
		{suite(imageutils.Nautilus), []tree{busybox, agnhost, kitten}, webConfig},
		{suite(imageutils.Nginx), []tree{busybox, nginx}, nginxConfig},
		{suite(imageutils.NginxNew), []tree{busybox, nginx}, nginxConfig},
		{suite(imageutils.Nonewprivs), []tree{busybox, nnp}, v1.Config{Cmd: []string{"nnp"}}},
		{suite(imageutils.NonRoot), []tree{busybox}, v1.Config{User: "1234", Cmd: []string{"sh"}}},
		{suite(imageutils.Pause), []tree{pause}, pauseConfig},
		{pauseName, []tree{pause}, pauseConfig},
	}
	for i := range list {
		list[i].config.Env = []string{pathVariable}
		// Two names of one image would be one image to the runtime, and a
		// pod's status could say either.
		list[i].config.Labels = map[string]string{"org.opencontainers.image.ref.name": list[i].name}
	}
	return list, nil
}

func suite(id imageutils.ImageID) string { return imageutils.GetE2EImage(id) }

func (s sources) program(name string) string { return filepath.Join(s.bin, name) }

// agnhost is the suite's program of many tricks, and what its image has besides.
func (s sources) agnhost() (tree, error) {
	t, err := programs(map[string]string{
		"bin/curl": "/usr/bin/curl",
		"bin/dig":  "/usr/bin/dig",
		"bin/nc":   "/bin/nc.openbsd",
		"bin/ip":   "/bin/ip",
		"bin/ss":   "/bin/ss",
	})
	if err != nil {
		return nil, err
	}
	t.file("agnhost", s.program("agnhost"), 0o755)
	t.link("agnhost-2", "agnhost") // for tests that override the entrypoint
	t.dir("uploads", 0o755)
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		t.file(name, filepath.Join(s.kubernetes, "test/images/agnhost/porter", name), 0o644)
	}
	t.text("etc/passwd", passwd+"user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n")
	t.text("etc/group", group+strings.Join([]string{
		"user-defined-in-image:x:1000:",
		"group-defined-in-image:x:50000:user-defined-in-image",
		"",
	}, "\n"))
	return t, nil
}
