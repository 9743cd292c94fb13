package slurm

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// registrySchemes returns those with which the runtime gets images from registries.
func (r Runtime) registrySchemes() []string {
	if r.isApptainer() {
		return []string{"docker", "oras", "library"}
	}
	return []string{"docker"}
}

// fileTransports returns what stands before the path of an image, besides nothing.
func (r Runtime) fileTransports() []string {
	switch {
	case r.isApptainer():
		return []string{"docker-archive", "oci", "oci-archive"}
	case r == RuntimePodman:
		return []string{"docker-archive", "oci", "oci-archive", "dir", "sif"}
	}
	return nil
}

// otherTransports are Podman's for stores of images, and for what is no path alone. It takes a
// name before a colon for one of them, and not for that of an image with a tag.
var otherTransports = []string{"atomic", "containers-storage", "docker-daemon", "ostree", "tarball"}

// image returns the image of a container as the runtime takes it, and its path, if it is one on the
// machine: that is mounted, as a volume is. The error says what the runtime would read that pods
// may not.
func (c *Config) image(pod *corev1.Pod, container *corev1.Container) (image, file string, err error) {
	prefix := c.ImagePrefix
	if root := pod.Annotations[annotationImageRoot]; root != "" {
		prefix = root
	}
	image = container.Image
	if !strings.Contains(image, "://") && !strings.HasPrefix(image, "/") {
		image = prefix + image
	}
	if c.Runtime == RuntimeNone {
		return image, "", nil // it means nothing
	}
	scheme, rest, _ := strings.Cut(image, ":")
	isAbs := strings.HasPrefix(rest, "/")
	switch {
	case strings.HasPrefix(rest, "//") && slices.Contains(c.Runtime.registrySchemes(), scheme):
		return image, "", nil
	case slices.Contains(c.Runtime.fileTransports(), scheme) && isAbs:
		tag := ""
		if file = rest; scheme != "dir" && scheme != "sif" { // paths with colons, and no tags
			file, tag, _ = strings.Cut(rest, ":")
		}
		file = path.Clean(file)
		image = strings.TrimSuffix(scheme+":"+file+":"+tag, ":")
	case c.Runtime != RuntimePodman && strings.HasPrefix(image, "/"):
		file = path.Clean(image)
		image = file
	case c.Runtime == RuntimePodman && isReference(image):
		return image, "", nil
	default:
		return "", "", fmt.Errorf("image %s: with runtime: %s images are a registry's (%s://), or absolute paths that the field hostPaths allows",
			image, c.Runtime, strings.Join(c.Runtime.registrySchemes(), "://, "))
	}
	if c.allowing(file) == "" {
		return "", "", fmt.Errorf("image %s, which the field hostPaths would allow", image)
	}
	return image, file, nil
}

// isReference reports whether Podman looks for an image without a scheme in registries.
func isReference(image string) bool {
	transport, _, _ := strings.Cut(image, ":")
	_, err := reference.ParseNormalizedNamed(image)
	return err == nil && !slices.Contains(slices.Concat(RuntimePodman.fileTransports(), otherTransports), transport)
}
