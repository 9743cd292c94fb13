package containerd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Options say how to start a containerd.
type Options struct {
	// Binary is the path of the supervisor, containerd-up. Required.
	Binary string

	// SandboxImage is the name of the image that holds a pod's namespaces.
	// It must be in one of the Images. Required.
	SandboxImage string

	// Images are archives ("docker save" or OCI) that are imported at the
	// start, under the names that they say.
	Images []string

	// Mirror is the URL of a registry that is asked for every image that is
	// pulled, for any host. Defaults to none: images are pulled from
	// where their names say.
	Mirror string

	// Runc is the path of the program that runs containers. Defaults to runc.
	Runc string

	// SystemdCgroup has control groups made by systemd, which must run here unless
	// Runc does without. Defaults to false: directories.
	SystemdCgroup bool

	// Dir is the directory for all of containerd's files. It must not exist or be
	// empty, its path must be short (Unix sockets have short names), and it is
	// removed in the end with everything in it, what others put there included.
	// Defaults to a temporary directory.
	Dir string

	// LogFile gets containerd's log. Defaults to a file in Dir.
	LogFile string

	// Log gets the supervisor's progress lines, from another goroutine.
	// Defaults to none.
	Log io.Writer
}

// complete checks the options and makes the paths absolute.
func (o *Options) complete() error {
	if o.Binary == "" {
		return errors.New("start containerd: Options.Binary is empty: set it to the path of containerd-up, which \"make containerd-up\" builds")
	}
	if o.SandboxImage == "" {
		return errors.New("start containerd: Options.SandboxImage is empty: set it to the name of an image in Options.Images whose program only waits")
	}
	for _, path := range append([]*string{&o.Binary, &o.Runc, &o.Dir, &o.LogFile}, pointers(o.Images)...) {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("resolve %s: %w", *path, err)
		}
		*path = absolute
	}
	if _, err := os.Stat(o.Binary); err != nil {
		return fmt.Errorf("find containerd-up (run \"make containerd-up\"): %w", err)
	}
	for _, image := range o.Images {
		if _, err := os.Stat(image); err != nil {
			return fmt.Errorf("find the archive of images: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return nil
}

func pointers(list []string) []*string {
	result := make([]*string, len(list))
	for i := range list {
		result[i] = &list[i]
	}
	return result
}

// flags are the arguments of the supervisor.
func (o *Options) flags() []string {
	flags := []string{"up", "--stop-with-stdin", "--dir", o.Dir, "--sandbox-image", o.SandboxImage}
	if o.Mirror != "" {
		flags = append(flags, "--mirror", o.Mirror)
	}
	if o.LogFile != "" {
		flags = append(flags, "--log-file", o.LogFile)
	}
	if o.Runc != "" {
		flags = append(flags, "--runc", o.Runc)
	}
	if o.SystemdCgroup {
		flags = append(flags, "--systemd-cgroup")
	}
	for _, image := range o.Images {
		flags = append(flags, "--image", image)
	}
	return flags
}
