package podspec

import (
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
)

// HashContainer is a hash of those fields of a container whose change means that
// it has to be started again: its name and its image. All else that may change in
// a running pod (resources, KEP-1287) is applied to the container as it is.
//
// The hash is kept with the container in the runtime, so it must be the same
// in all versions of this package; otherwise an upgrade would restart everything.
func HashContainer(c *corev1.Container) uint64 {
	h := fnv.New64a()
	// Neither has a NUL in it, so that no two pairs give the same bytes.
	h.Write([]byte(c.Name + "\x00" + c.Image))
	return h.Sum64()
}
