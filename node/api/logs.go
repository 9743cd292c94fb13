package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// ContainerLogsHandlerFunc opens the log of a container. The context ends when
// the client has gone; the reader is closed then too, also while it is being
// read, and always exactly once. A nil reader is an empty log.
type ContainerLogsHandlerFunc func(ctx context.Context, namespace, podName, containerName string, opts ContainerLogOpts) (io.ReadCloser, error)

// ContainerLogStreamHandlerFunc is ContainerLogsHandlerFunc for one of a
// container's two output streams, "Stdout" or "Stderr".
type ContainerLogStreamHandlerFunc func(ctx context.Context, namespace, podName, containerName, stream string, opts ContainerLogOpts) (io.ReadCloser, error)

// ContainerLogOpts says which part of a log is wanted. The zero value of each
// field means that the client did not ask for it.
//
// Providers convert this struct to their own of the same fields: their names,
// types and order are fixed.
type ContainerLogOpts struct {
	// Tail is the number of lines from the end of the log to begin with. A
	// client's request for no line at all does not come here: see
	// HandleContainerLogs.
	Tail int
	// LimitBytes is the number of bytes after which to stop. The handler stops
	// there in any case.
	LimitBytes int
	// Timestamps puts an RFC 3339 timestamp before each line.
	Timestamps bool
	// Follow goes on with new lines until the container ends.
	Follow bool
	// Previous asks for the log of the container's previous instance.
	Previous bool
	// SinceSeconds asks for lines that are no older than so many seconds. It
	// is never set together with SinceTime.
	SinceSeconds int
	// SinceTime asks for lines that are no older than this.
	SinceTime time.Time
}

// ContainerLogsHandlerConfig is what the options of HandleContainerLogStreams set.
type ContainerLogsHandlerConfig struct {
	// Limiter limits how many logs are read at once. Nil means one of the handler's
	// own, with the default limits.
	Limiter *StreamLimiter

	find PodFinderFunc // where it is known, for explainNoLog
}

// ContainerLogsHandlerOption sets something of a ContainerLogsHandlerConfig.
type ContainerLogsHandlerOption func(*ContainerLogsHandlerConfig)

// WithLogsLimiter sets Limiter.
func WithLogsLimiter(limiter *StreamLimiter) ContainerLogsHandlerOption {
	return func(cfg *ContainerLogsHandlerConfig) { cfg.Limiter = limiter }
}

func withLogsPodFinder(find PodFinderFunc) ContainerLogsHandlerOption {
	return func(cfg *ContainerLogsHandlerConfig) { cfg.find = find }
}

// HandleContainerLogs answers with a container's log, each piece as soon as the
// provider's reader has it, bytes untouched. The query is that of the kubelet:
// follow, previous, timestamps, tailLines (or tail, with "all" for all lines),
// limitBytes, sinceSeconds, sinceTime, stream.
//
// ContainerLogOpts cannot distinguish tailLines=0 from its absence. With follow it
// becomes a SinceTime of now; without, the answer is empty and the provider is
// not asked. A stream other than All is answered with 501: see
// HandleContainerLogStreams.
func HandleContainerLogs(h ContainerLogsHandlerFunc) http.HandlerFunc {
	return HandleContainerLogStreams(h, nil)
}

// HandleContainerLogStreams is HandleContainerLogs for a provider that can separate
// standard output from standard error: single is asked where the query's stream
// is Stdout or Stderr. (Clients can ask for that where the cluster has the
// feature PodLogsQuerySplitStreams.)
func HandleContainerLogStreams(h ContainerLogsHandlerFunc, single ContainerLogStreamHandlerFunc, opts ...ContainerLogsHandlerOption) http.HandlerFunc {
	var cfg ContainerLogsHandlerConfig
	for _, o := range opts {
		o(&cfg)
	}
	limiter := cfg.Limiter.orDefault()
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notImplemented("GetContainerLogs", "ContainerLogsHandlerFunc")
		}
		namespace, pod, _, container, err := containerVars(r)
		if err != nil {
			return err
		}
		if err := checkNoBody(w, r); err != nil {
			return err
		}
		query, err := parseLogQuery(r.URL.RawQuery, time.Now())
		if err != nil {
			return err
		}
		if query.stream != "" && single == nil {
			return notImplemented("logs of a single stream", "ContainerLogStreamHandlerFunc")
		}
		release, err := limiter.session(limiter.consumer(r, namespace, pod))
		if err != nil {
			return err
		}
		defer release()
		var logs io.ReadCloser
		switch {
		case query.nothing:
		case query.stream != "":
			logs, err = single(r.Context(), namespace, pod, container, query.stream, query.opts)
		default:
			logs, err = h(r.Context(), namespace, pod, container, query.opts)
		}
		if err == nil {
			err = streamLogs(w, r, logs, query.opts.LimitBytes)
		}
		return explainNoLog(r.Context(), cfg.find, namespace, pod, container, query.opts.Previous, err)
	})
}

// streamLogs copies logs to w and closes it. A log that breaks off makes an
// error, so that the client does not take it for a whole one.
func streamLogs(w http.ResponseWriter, r *http.Request, logs io.ReadCloser, limit int) error {
	var src io.Reader = http.NoBody
	if logs != nil {
		closeOnce := sync.OnceFunc(func() { _ = call(r, logs.Close) })
		defer closeOnce()
		stop := context.AfterFunc(r.Context(), closeOnce)
		defer stop()
		src = logs
	}
	if lines, ok := logs.(*lineReader); ok {
		if err := lines.begin(); err != nil {
			return err // while it can be the answer
		}
	}
	if limit > 0 {
		src = io.LimitReader(src, int64(limit))
	}

	response := http.NewResponseController(w)
	// A server's timeouts are not for an answer that may go on for days.
	_ = response.SetReadDeadline(time.Time{})
	_ = response.SetWriteDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	_ = response.Flush()

	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return nil // the client has gone
			}
			_ = response.Flush()
		}
		switch {
		case r.Context().Err() != nil:
			// The log was closed, which some readers end with io.EOF. Where it was not the
			// client but the server that ended, the client must not take that for the end.
			return r.Context().Err()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// The kubelet's own words.
var (
	errLogQuery   = statusError{http.StatusBadRequest, `{"message": "Unable to decode query."}`}
	errLogRequest = statusError{http.StatusUnprocessableEntity, `{"message": "Invalid request."}`}
)
