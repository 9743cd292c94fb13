package podengine

import (
	"context"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// session is what a streaming.Runtime gets of an api.AttachIO. Streams that the client
// did not ask for are nil.
type session struct {
	in        io.Reader
	out, errs io.WriteCloser
	tty       bool
	sizes     <-chan remotecommand.TerminalSize
}

// direct connects attach to a runtime in this process.
func direct(ctx context.Context, attach api.AttachIO, connect func(session) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := session{in: attach.Stdin(), out: attach.Stdout(), tty: attach.TTY()}
	if s.tty {
		resized := make(chan remotecommand.TerminalSize)
		s.sizes = resized
		go func() { // ends with ctx
			queue := sizes{ctx, attach.Resize()}
			for size := queue.Next(); size != nil; size = queue.Next() {
				select {
				case resized <- remotecommand.TerminalSize{Width: size.Width, Height: size.Height}:
				case <-ctx.Done():
				}
			}
		}()
	} else {
		s.errs = attach.Stderr()
	}
	return untilDone(ctx, func() error { return connect(s) })
}

// untilDone returns what f returns, or once ctx has ended. In that case f goes on until
// its streams are closed, which their owner does when this has returned.
func untilDone(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }() // ends with the streams of f
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
