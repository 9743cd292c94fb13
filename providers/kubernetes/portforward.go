package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstream"
)

// PortForward implements nodeutil.Provider.
func (p *Provider) PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
	remote, err := p.findCurrent(ctx, namespace, pod)
	if err != nil {
		return err
	}
	conn, err := p.dial(remote)
	if err != nil {
		return fmt.Errorf("cannot connect to the pod in the remote cluster: %w", err)
	}
	hangUp := func() { _ = conn.Close() }
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	data, failure, err := podstream.OpenPort(conn, int(port))
	if err != nil {
		return fmt.Errorf("cannot open port %d of the pod in the remote cluster: %w", port, err)
	}
	failed := make(chan error, 1)
	go func() { // ends with the connection, and is waited for below
		text, err := io.ReadAll(failure) // ends with the connection
		if len(text) > 0 {
			err = errors.New(string(text))
		}
		failed <- err
	}()
	go func() { // ends with stream, which the caller closes
		_, _ = io.Copy(data, stream)
		_ = data.Close()
	}()
	if _, err = io.Copy(stream, data); err != nil && ctx.Err() == nil {
		hangUp()
		return errors.Join(err, <-failed)
	}
	hangUp()
	return <-failed
}

// dial connects by WebSocket, or by SPDY if the remote API server does not support
// that.
func (p *Provider) dial(remote *corev1.Pod) (httpstream.Connection, error) {
	address := p.podURL(remote, "portforward", nil)
	transport, upgrader, err := spdy.RoundTripperFor(p.rest)
	if err != nil {
		return nil, err
	}
	second := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	first, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, p.rest)
	if err != nil {
		return nil, err
	}
	conn, _, err := portforward.NewFallbackDialerForStreaming(first, second, shouldFallback).Dial(portforward.PortForwardProtocolV1Name)
	return conn, err
}
