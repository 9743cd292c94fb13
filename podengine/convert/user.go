package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// user is the user that an image's processes run as: a number or a name.
type user struct {
	id   *int64
	name string
}

// imageUser is root where an image names nobody.
func imageUser(image *runtimeapi.Image) user {
	switch {
	case image.GetUid() != nil:
		return user{id: &image.GetUid().Value}
	case image.GetUsername() != "":
		return user{name: image.GetUsername()}
	default:
		return user{id: new(int64)}
	}
}

// setUser takes the image's user where the pod names none: the CRI takes a group
// only together with a user.
func setUser(security *runtimeapi.LinuxContainerSecurityContext, sc corev1.SecurityContext, image user) {
	if sc.RunAsUser != nil {
		image = user{id: sc.RunAsUser}
	}
	security.RunAsUser = int64Value(image.id)
	security.RunAsUsername = image.name
}

// checkNonRoot refuses a container that must not run as root and would, or
// might, in the kubelet's words. See runAsNonRoot in the API.
func checkNonRoot(pod *corev1.Pod, c *corev1.Container, sc corev1.SecurityContext, image user) error {
	where := fmt.Sprintf("(pod: %q, container: %s)", podspec.PodName(pod), c.Name)
	switch {
	case !isTrue(sc.RunAsNonRoot):
		return nil
	case sc.RunAsUser != nil:
		if *sc.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
		}
		return nil
	case image.id == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", image.name, where)
	case *image.id == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	return nil
}
