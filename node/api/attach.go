package api

import (
	"context"
	"net/http"
)

// ContainerAttachHandlerFunc connects the given streams with a container's main
// process, and returns when that has ended. The context ends when the client
// has gone; the process goes on then. Errors are as with
// ContainerExecHandlerFunc.
type ContainerAttachHandlerFunc func(ctx context.Context, namespace, podName, containerName string, attach AttachIO) error

// HandleContainerAttach attaches to a container. The query is that of
// HandleContainerExec, without a command.
func HandleContainerAttach(h ContainerAttachHandlerFunc, opts ...ContainerExecHandlerOption) http.HandlerFunc {
	sessions := sessionsOf(failedAttach, opts)
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notImplemented("AttachToContainer", "ContainerAttachHandlerFunc")
		}
		namespace, pod, container, query, err := sessionVars(r)
		if err != nil {
			return err
		}
		return sessions.serve(w, r, query, func(ctx context.Context, attach AttachIO) error {
			return h(ctx, namespace, pod, container, attach)
		})
	})
}
