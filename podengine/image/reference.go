package image

import (
	"fmt"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// name is an image's name as a person wrote it, understood.
type name struct {
	// full has a tag or a digest: what the runtime is asked for.
	full string
	// repository has the registry: docker.io/library/nginx for nginx.
	repository string
	// latest reports whether the tag is latest, or there is neither tag nor digest.
	latest bool
}

func parse(image string) (name, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return name{}, fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	n := name{full: image, repository: named.Name()}
	if reference.IsNameOnly(named) {
		n.full += ":latest"
	}
	_, digested := named.(reference.Digested)
	tagged, hasTag := named.(reference.Tagged)
	n.latest = !digested && (!hasTag || tagged.Tag() == "latest")
	return n, nil
}

// policy is the pull policy, or else its default: what may change under its
// name is pulled always.
func (n name) policy(p corev1.PullPolicy) corev1.PullPolicy {
	switch {
	case p != "":
		return p
	case n.latest:
		return corev1.PullAlways
	default:
		return corev1.PullIfNotPresent
	}
}
