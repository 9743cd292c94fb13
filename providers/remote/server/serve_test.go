package server_test

import (
	"context"
	"net"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// A server whose context has ended while its provider was made has not failed.
func TestServeThatEndsAtOnce(t *testing.T) {
	provider, err := mock.New(mock.Config{NodeName: "virtual-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	s := server.New(t.Context(), nodeutil.AsProvider(provider), nil, server.Options{})
	for range 1000 { // it is seldom that the end comes first
		ctx, cancel := context.WithCancel(t.Context())
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := s.Serve(ctx, listener); err != nil {
			t.Fatal(err)
		}
	}
}
