package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// timeouts of a stream, both set.
type timeouts struct{ idle, creation time.Duration }

// defaultIdleTimeout is the kubelet's.
const defaultIdleTimeout = 4 * time.Hour

func newTimeouts(idle, creation time.Duration) timeouts {
	if idle <= 0 {
		idle = defaultIdleTimeout
	}
	if creation <= 0 {
		creation = remotecommand.DefaultStreamCreationTimeout
	}
	return timeouts{idle, creation}
}

// errUpgradeRequired is what the kubelet answers, status included.
var errUpgradeRequired = statusError{http.StatusInternalServerError, "Upgrade request required"}

// session is one exec or attach.
type session struct {
	request  *http.Request
	opts     *remotecommand.Options
	timeouts timeouts
	run      func(context.Context, AttachIO) error
	calls    calls
}

var _ remotecommand.Executor = (*session)(nil)

// serveSession connects run with the client, and returns when both have ended.
func serveSession(w http.ResponseWriter, r *http.Request, timeouts timeouts, run func(context.Context, AttachIO) error) error {
	opts, err := remotecommand.NewOptions(r)
	if err != nil {
		return errdefs.AsInvalidInput(err)
	}
	if !httpstream.IsUpgradeRequest(r) {
		return errUpgradeRequired
	}
	conn, r := watch(w, r, timeouts.idle)
	s := &session{request: r, opts: opts, timeouts: timeouts, run: run}
	defer s.calls.finish()
	defer conn.Close()
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.translate(conn, r)
	} else {
		s.serve(conn, r)
	}
	return nil
}

// serve speaks SPDY and the older WebSocket protocols. Attach is served like
// exec, since only there the library passes on exit codes.
func (s *session) serve(w http.ResponseWriter, r *http.Request) {
	remotecommand.ServeExec(w, r, s, "", "", "", nil, s.opts,
		s.timeouts.idle, s.timeouts.creation, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer implements remotecommand.Executor: the client's streams are
// there, ctx is that of its connection.
func (s *session) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if !s.calls.start() {
		return context.Canceled
	}
	defer s.calls.end()
	stop := context.AfterFunc(ctx, func() { release(in) })
	defer stop()

	ctx, cancel := context.WithCancel(ctx)
	attach := newAttachIO(s.opts, in, out, errOut)
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		forwardSizes(ctx, resize, attach.resize)
	}()
	defer func() {
		cancel()
		<-forwarded
	}()
	return call(s.request, func() error { return exitError(s.run(ctx, attach)) })
}

// exitError returns an error that the library knows as an exit code, if err is
// or wraps one.
func exitError(err error) error {
	exit, ok := errors.AsType[interface {
		error
		Exited() bool
		ExitStatus() int
	}](err)
	if !ok || !exit.Exited() {
		return err
	}
	if exit.ExitStatus() == 0 {
		return nil
	}
	return utilexec.CodeExitError{Err: errors.New(err.Error()), Code: exit.ExitStatus()}
}

// release unblocks whoever reads from stream. A SPDY stream that is merely
// closed would go on to take input, and block its connection with it.
func release(stream any) {
	switch s := stream.(type) {
	case interface{ Reset() error }:
		_ = s.Reset()
	case io.Closer:
		_ = s.Close()
	}
}
