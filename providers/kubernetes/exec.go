package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// RunInContainer implements nodeutil.Provider.
func (p *Provider) RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error {
	return p.stream(ctx, namespace, podName, "exec", attach, &corev1.PodExecOptions{
		Container: containerName, Command: cmd,
		Stdin: attach.Stdin() != nil, Stdout: attach.Stdout() != nil, Stderr: attach.Stderr() != nil, TTY: attach.TTY(),
	})
}

// AttachToContainer implements nodeutil.Provider.
func (p *Provider) AttachToContainer(ctx context.Context, namespace, podName, containerName string, attach api.AttachIO) error {
	return p.stream(ctx, namespace, podName, "attach", attach, &corev1.PodAttachOptions{
		Container: containerName,
		Stdin:     attach.Stdin() != nil, Stdout: attach.Stdout() != nil, Stderr: attach.Stderr() != nil, TTY: attach.TTY(),
	})
}

// stream connects a client with a container in the remote cluster by WebSocket, or by
// SPDY if the remote API server does not support that.
func (p *Provider) stream(ctx context.Context, namespace, podName, subresource string, attach api.AttachIO, options runtime.Object) error {
	remote, err := p.findCurrent(ctx, namespace, podName)
	if err != nil {
		return err
	}
	address := p.podURL(remote, subresource, options)
	first, err := remotecommand.NewWebSocketExecutor(p.rest, http.MethodGet, address.String())
	if err != nil {
		return fmt.Errorf("cannot connect to the remote cluster: %w", err)
	}
	second, err := remotecommand.NewSPDYExecutor(p.rest, http.MethodPost, address)
	if err != nil {
		return fmt.Errorf("cannot connect to the remote cluster: %w", err)
	}
	executor, err := remotecommand.NewFallbackExecutor(first, second, shouldFallback)
	if err != nil {
		return fmt.Errorf("cannot connect to the remote cluster: %w", err)
	}
	streams := remotecommand.StreamOptions{Stdin: attach.Stdin(), Tty: attach.TTY(), TerminalSizeQueue: terminalSizes{ctx, attach.Resize()}}
	if out := attach.Stdout(); out != nil {
		streams.Stdout = out
	}
	if out := attach.Stderr(); out != nil {
		streams.Stderr = out
	}
	return executor.StreamWithContext(ctx, streams)
}

func shouldFallback(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// podURL returns the URL of a subresource of a remote pod.
func (p *Provider) podURL(remote *corev1.Pod, subresource string, options runtime.Object) *url.URL {
	request := p.remote.CoreV1().RESTClient().Post().Resource("pods").Namespace(remote.Namespace).Name(remote.Name).SubResource(subresource)
	if options != nil {
		request.VersionedParams(options, scheme.ParameterCodec)
	}
	return request.URL()
}

// terminalSizes queues the sizes of the client's terminal.
type terminalSizes struct {
	ctx    context.Context
	resize <-chan api.TermSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (s terminalSizes) Next() *remotecommand.TerminalSize {
	select {
	case size, ok := <-s.resize:
		if ok {
			return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
		}
	case <-s.ctx.Done():
	}
	return nil
}
