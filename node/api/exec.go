package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// ContainerExecHandlerFunc runs cmd in a container, with the given streams, and
// returns when it has ended. The context ends when the client has gone.
//
// An error that has, or wraps one that has, the methods ExitStatus() int and
// Exited() bool (ExitError of k8s.io/utils/exec) becomes the exit code that the
// client sees; with any other error the client gets its message.
type ContainerExecHandlerFunc func(ctx context.Context, namespace, podName, containerName string, cmd []string, attach AttachIO) error

// ContainerExecHandlerConfig is what the options of HandleContainerExec and
// HandleContainerAttach set.
type ContainerExecHandlerConfig struct {
	// StreamIdleTimeout ends a session over which nothing was sent for so long,
	// in neither direction. (kubectl sends something every few seconds as long
	// as it runs.) Zero (or less) means four hours.
	StreamIdleTimeout time.Duration
	// StreamCreationTimeout is how long a client may take to open the streams
	// that it announced. Zero (or less) means 30 seconds.
	StreamCreationTimeout time.Duration
	// Limiter limits how many sessions there are at once. Nil means one of the
	// handler's own, with the default limits.
	Limiter *StreamLimiter
}

// ContainerExecHandlerOption sets something of a ContainerExecHandlerConfig.
type ContainerExecHandlerOption func(*ContainerExecHandlerConfig)

// WithExecStreamIdleTimeout sets StreamIdleTimeout.
func WithExecStreamIdleTimeout(dur time.Duration) ContainerExecHandlerOption {
	return func(cfg *ContainerExecHandlerConfig) { cfg.StreamIdleTimeout = dur }
}

// WithExecStreamCreationTimeout sets StreamCreationTimeout.
func WithExecStreamCreationTimeout(dur time.Duration) ContainerExecHandlerOption {
	return func(cfg *ContainerExecHandlerConfig) { cfg.StreamCreationTimeout = dur }
}

// WithExecLimiter sets Limiter.
func WithExecLimiter(limiter *StreamLimiter) ContainerExecHandlerOption {
	return func(cfg *ContainerExecHandlerConfig) { cfg.Limiter = limiter }
}

// HandleContainerExec runs the command of the query (command, once for each
// word) in a container. The query's input, output, error and tty, each "1" or
// absent, say which streams the client has; at least one of the first three is
// needed.
func HandleContainerExec(h ContainerExecHandlerFunc, opts ...ContainerExecHandlerOption) http.HandlerFunc {
	sessions := sessionsOf(failedExec, opts)
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notImplemented("RunInContainer", "ContainerExecHandlerFunc")
		}
		namespace, pod, container, query, err := sessionVars(r)
		if err != nil {
			return err
		}
		cmd := query["command"]
		if len(cmd) == 0 {
			return errdefs.InvalidInput("you must specify a command")
		}
		return sessions.serve(w, r, query, func(ctx context.Context, attach AttachIO) error {
			return h(ctx, namespace, pod, container, cmd, attach)
		})
	})
}

// sessionVars are what a request for a session in a container asks for.
func sessionVars(r *http.Request) (namespace, pod, container string, query url.Values, err error) {
	if namespace, pod, _, container, err = containerVars(r); err == nil {
		query, err = parseQuery(r)
	}
	return namespace, pod, container, query, err
}

func sessionsOf(failed string, opts []ContainerExecHandlerOption) sessions {
	var cfg ContainerExecHandlerConfig
	for _, o := range opts {
		o(&cfg)
	}
	return sessions{failed, newTimeouts(cfg.StreamIdleTimeout, cfg.StreamCreationTimeout), cfg.Limiter.orDefault()}
}
