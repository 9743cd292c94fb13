package server

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
)

// stopTimeout is how long streams may take to end with Serve.
const stopTimeout = 2 * time.Second

// Serve answers at a listener, which it closes, until ctx ends; streams then have two seconds to end
// by themselves. more are options beside those of ServerOptions, such as credentials. The error is
// that of the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener, more ...grpc.ServerOption) error {
	to := grpc.NewServer(append(s.ServerOptions(), more...)...)
	s.Register(to)
	defer context.AfterFunc(ctx, func() {
		late := time.AfterFunc(stopTimeout, to.Stop)
		defer late.Stop()
		to.GracefulStop()
	})()
	return to.Serve(listener)
}
