package server

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
)

// stopTimeout is how long streams may take to end with Serve.
const stopTimeout = 2 * time.Second

// Serve answers at a listener, such as that of ListenAt, which it closes, until ctx ends; streams then
// have two seconds to end by themselves. more are options beside those of ServerOptions. The error is
// that of the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener, more ...grpc.ServerOption) error {
	to := grpc.NewServer(append(s.ServerOptions(), more...)...)
	s.Register(to)
	defer context.AfterFunc(ctx, func() {
		late := time.AfterFunc(stopTimeout, to.Stop)
		defer late.Stop()
		to.GracefulStop()
	})()
	if err := to.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) { // ctx had ended before
		return err
	}
	return nil
}
