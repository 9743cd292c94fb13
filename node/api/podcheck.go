package api

import (
	"context"
	"fmt"
	"net/http"

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
		case err != nil && !errdefs.IsNotFound(err):
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
