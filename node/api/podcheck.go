package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// PodFinderFunc returns the pod of that name that is bound to the node, as the API
// server has it. If there is none, it returns an error of class NotFound, or nil and
// no error; any other error means that it does not know. The pod is only read.
type PodFinderFunc func(ctx context.Context, namespace, name string) (*v1.Pod, error)

// RequirePod answers 404 where the path of a request names a pod that find does not
// know by the path's {namespace}, {pod} and, if it has one, {uid}; h gets all other
// requests. An error of find other than NotFound is answered by its class. A nil
// find lets everything through.
func RequirePod(find PodFinderFunc, h http.Handler) http.Handler {
	if find == nil {
		return h
	}
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		namespace, name, uid, err := podVars(r)
		if err != nil {
			return err
		}
		pod, err := find(r.Context(), namespace, name)
		switch {
		case err != nil && !errdefs.IsOnlyNotFound(err):
			return fmt.Errorf("cannot find pod %q: %w", name, err)
		case err != nil, pod == nil:
			return errdefs.NotFoundf("pod %q does not exist", name)
		case uid != "" && string(pod.UID) != uid:
			return errdefs.NotFoundf("pod %q with UID %q does not exist", name, uid)
		}
		h.ServeHTTP(w, r)
		return nil
	})
}

// explainNoLog returns the answer where the provider does not have the log of a container
// that the pod has: status 400, as a kubelet answers, since the API server passes on no
// text of a 404. A container that waits is explained in the kubelet's words, any other in
// the provider's. All other errors stay as they are.
func explainNoLog(ctx context.Context, find PodFinderFunc, namespace, name, container string, previous bool, err error) error {
	if find == nil || errdefs.ClassOf(err) != errdefs.NotFoundClass {
		return err
	}
	pod, findErr := find(ctx, namespace, name)
	if findErr != nil || pod == nil || !hasContainer(&pod.Spec, container) {
		return err
	}
	status := containerStatus(&pod.Status, container)
	ended := status.LastTerminationState.Terminated != nil
	over := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	switch {
	case previous && !ended:
		return errdefs.InvalidInputf("previous terminated container %q in pod %q not found", container, name)
	case ended, over, status.State.Running != nil, status.State.Terminated != nil:
		return errdefs.AsInvalidInput(err)
	}
	reason := "ContainerCreating"
	if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" {
		reason = waiting.Reason
	}
	switch reason {
	case "ErrImagePull":
		reason = "image can't be pulled"
	case "ImagePullBackOff":
		reason = "trying and failing to pull image"
	}
	return errdefs.InvalidInputf("container %q in pod %q is waiting to start: %s", container, name, reason)
}

func hasContainer(spec *v1.PodSpec, name string) bool {
	is := func(c v1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(spec.Containers, is) || slices.ContainsFunc(spec.InitContainers, is) ||
		slices.ContainsFunc(spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == name })
}

// containerStatus returns the status of a container, an empty one if there is none yet.
func containerStatus(status *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, statuses := range [][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return &v1.ContainerStatus{}
}
