package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
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

// checkUpgrade refuses what the streaming libraries cannot upgrade, or would
// upgrade to something else than was meant.
func checkUpgrade(w http.ResponseWriter, r *http.Request) error {
	if !httpstream.IsUpgradeRequest(r) {
		return errUpgradeRequired
	}
	protocol := r.Header.Get(httpstream.HeaderUpgrade)
	if !wsstream.IsWebSocketRequest(r) && !strings.EqualFold(protocol, spdy.HeaderSpdy31) {
		return errdefs.InvalidInputf("cannot upgrade to %q, only to %s or websocket", protocol, spdy.HeaderSpdy31)
	}
	return checkNoBody(w, r)
}

// checkNoBody refuses a request with a body. Nothing reads it, so that it would
// be taken for the first bytes of a stream, or hide that the client has gone.
func checkNoBody(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // or the server would wait for the body
		return errdefs.InvalidInput("the request must not have a body")
	}
	return nil
}

// parseQuery is r.URL.Query that does not guess.
func parseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errdefs.AsInvalidInput(err)
	}
	return query, nil
}

// execStreams says which streams a client has.
type execStreams struct{ stdin, stdout, stderr, tty bool }

func parseExecStreams(query url.Values) (execStreams, error) {
	has := func(name string) bool { return query.Get(name) == "1" }
	want := execStreams{
		stdin:  has(remotecommand.ExecStdinParam),
		stdout: has(remotecommand.ExecStdoutParam),
		stderr: has(remotecommand.ExecStderrParam),
		tty:    has(remotecommand.ExecTTYParam),
	}
	want.stderr = want.stderr && !want.tty // a terminal has one output
	if !want.stdin && !want.stdout && !want.stderr {
		return execStreams{}, errdefs.InvalidInput("you must specify at least 1 of stdin, stdout, stderr")
	}
	return want, nil
}

// execClient is the client's side of an exec or attach.
type execClient struct {
	stdin, stdout, stderr io.ReadWriteCloser // nil where the client has none
	resize                io.Reader          // may be nil
	// finish sends the client how it ended.
	finish func(error)
	// close releases everything, the connection excepted.
	close func()
}

// sessions are those of an exec or attach handler.
type sessions struct {
	failed   string // as of execStatus
	timeouts timeouts
	limiter  *StreamLimiter
}

// serve connects run with the client, and returns when both have ended.
func (s sessions) serve(w http.ResponseWriter, r *http.Request, query url.Values, run func(context.Context, AttachIO) error) error {
	want, err := parseExecStreams(query)
	if err != nil {
		return err
	}
	if err := checkUpgrade(w, r); err != nil {
		return err
	}
	namespace, pod, _, err := podVars(r)
	if err != nil {
		return err
	}
	release, err := s.limiter.session(s.limiter.consumer(r, namespace, pod))
	if err != nil {
		return err
	}
	defer release()
	conn, r := watch(w, r, s.timeouts.idle)
	defer conn.Close()

	var client *execClient
	if conn.webSocket {
		client = openWebSocket(conn, r, want, s.failed)
	} else {
		client = openSPDY(conn, r, want, s.failed, s.timeouts.creation)
	}
	if client == nil {
		return nil // and the client has got the error
	}
	defer func() {
		conn.gone() // from here on, nothing takes longer than lingerTime
		client.close()
	}()
	err = runSession(r, client, want.tty, run)
	if err != nil {
		log.G(r.Context()).WithField("error", errorText(err)).Debug("exec or attach ended with an error")
	}
	client.finish(err)
	return nil
}

func runSession(r *http.Request, client *execClient, tty bool, run func(context.Context, AttachIO) error) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if client.stdin != nil {
		stop := context.AfterFunc(ctx, func() { release(client.stdin) })
		defer stop()
	}
	attach := newAttachIO(ctx, cancel, client, tty)
	forwarded := make(chan struct{})
	go func() { // waited for below
		defer close(forwarded)
		forwardSizes(ctx, readSizes(ctx, client.resize), attach.resize)
	}()
	err := call(r, func() error { return run(ctx, attach) })
	cancel()
	<-forwarded
	return err
}

// exitCode is the code of a process whose end err is or wraps.
func exitCode(err error) (code int, ok bool) {
	exit, ok := errors.AsType[interface {
		error
		Exited() bool
		ExitStatus() int
	}](err)
	if !ok || !exit.Exited() {
		return 0, false
	}
	return exit.ExitStatus(), true
}
