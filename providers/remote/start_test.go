package remote_test

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server that ends just when the node has found it is waited for, like one that is not there yet: the process of
// the node does not end for it.
func TestServerThatEndsInTheMiddleOfAStart(t *testing.T) {
	s := serverOf(t, newPlain(), newPlain())
	var ended atomic.Bool
	grpcServer := grpc.NewServer(append(s.ServerOptions(), grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if strings.HasSuffix(info.FullMethod, "/WatchNode") && ended.CompareAndSwap(false, true) {
				return status.Error(codes.Unavailable, "the server ends")
			}
			return handler(srv, stream)
		}))...)
	s.Register(grpcServer)
	socket := filepath.Join(t.TempDir(), "provider.sock")
	serveOn(t, grpcServer, socket)
	connect(t, "unix://"+socket)
	if !ended.Load() {
		t.Error("the node has not asked how it is")
	}
}
