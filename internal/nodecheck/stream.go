package nodecheck

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

var errNoStreams = errors.New("this client cannot open streams")

// refusedError is an error of a request that was to become a stream, with the
// HTTP status of the answer, which client-go does not return.
type refusedError struct {
	code int
	err  error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// statusRecorder keeps the status of the last answer.
type statusRecorder struct {
	mu   sync.Mutex
	code int
}

// wrap records what passes through a transport.
func (r *statusRecorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if response != nil {
			r.mu.Lock()
			r.code = response.StatusCode
			r.mu.Unlock()
		}
		return response, err
	})
}

// refused adds the status to an error, if it is one of a refusal.
func (r *statusRecorder) refused(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.code >= http.StatusBadRequest {
		return &refusedError{r.code, err}
	}
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// recording is a config whose answers are recorded.
func (n *Node) recording() (*rest.Config, *statusRecorder, error) {
	if n.config == nil {
		return nil, nil, errNoStreams
	}
	config, recorder := rest.CopyConfig(n.config), &statusRecorder{}
	config.Wrap(recorder.wrap)
	return config, recorder, nil
}

// podURL is the URL of a subresource of a pod.
func (n *Node) podURL(pod *corev1.Pod, subresource string, options runtime.Object) *url.URL {
	request := n.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource(subresource)
	if options != nil {
		request = request.VersionedParams(options, scheme.ParameterCodec)
	}
	return request.URL()
}

// stream opens exec or attach, as kubectl does: by WebSocket, and where that is
// refused by SPDY. It returns when the streams have ended.
func (n *Node) stream(ctx context.Context, address *url.URL, options remotecommand.StreamOptions) error {
	config, recorder, err := n.recording()
	if err != nil {
		return err
	}
	primary, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, address.String())
	if err != nil {
		return err
	}
	secondary, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, address)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(primary, secondary, shouldFallBack)
	if err != nil {
		return err
	}
	return recorder.refused(executor.StreamWithContext(ctx, options))
}

// shouldFallBack reports whether SPDY is worth a try after WebSocket. It is, other
// than for kubectl, also where the API server could not get through to the
// kubelet: by SPDY it passes on the kubelet's own answer, and its status.
func shouldFallBack(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) ||
		err != nil && strings.Contains(err.Error(), "unable to upgrade connection")
}

// output is what a command printed.
type output struct{ stdout, stderr string }

// exec runs a command in a container to its end. stdin may be nil.
func (n *Node) exec(ctx context.Context, pod *corev1.Pod, container string, stdin io.Reader, tty bool, command ...string) (output, error) {
	ctx, cancel := n.patient(ctx)
	defer cancel()
	var stdout, stderr bytes.Buffer
	options := remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Tty: tty}
	if !tty {
		options.Stderr = &stderr
	}
	err := n.stream(ctx, n.podURL(pod, "exec", &corev1.PodExecOptions{
		Container: container, Command: command, Stdin: stdin != nil, Stdout: true, Stderr: !tty, TTY: tty,
	}), options)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return output{stdout.String(), stderr.String()}, err
}
