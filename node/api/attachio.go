package api

import (
	"context"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// AttachIO is what connects a process in a container with a client. The streams
// are valid until the provider's function returns.
type AttachIO interface {
	// Stdin is nil unless the client has input.
	Stdin() io.Reader
	// Stdout is nil unless the client wants it. Closing it is optional.
	Stdout() io.WriteCloser
	// Stderr is nil unless the client wants it, and with a TTY, whose output is
	// all on Stdout. Closing it is optional.
	Stderr() io.WriteCloser
	// TTY says whether the client wants a terminal.
	TTY() bool
	// Resize delivers the sizes of the client's terminal; a size that nobody
	// took is replaced by the next. It is never nil, and closed at the end of
	// the session.
	Resize() <-chan TermSize
}

// TermSize is the size of a terminal, in characters.
type TermSize struct {
	Width  uint16
	Height uint16
}

type attachIO struct {
	stdin          io.Reader
	stdout, stderr io.WriteCloser
	tty            bool
	resize         chan TermSize
}

var _ AttachIO = (*attachIO)(nil)

func (a *attachIO) Stdin() io.Reader        { return a.stdin }
func (a *attachIO) Stdout() io.WriteCloser  { return a.stdout }
func (a *attachIO) Stderr() io.WriteCloser  { return a.stderr }
func (a *attachIO) TTY() bool               { return a.tty }
func (a *attachIO) Resize() <-chan TermSize { return a.resize }

// newAttachIO leaves out the streams that opts does not ask for: some of the
// library's protocols have them all the same.
func newAttachIO(opts *remotecommand.Options, in io.Reader, out, errOut io.WriteCloser) *attachIO {
	a := &attachIO{tty: opts.TTY, resize: make(chan TermSize)}
	if opts.Stdin {
		a.stdin = in
	}
	if opts.Stdout {
		a.stdout = out
	}
	if opts.Stderr {
		a.stderr = errOut
	}
	return a
}

// forwardSizes passes on the newest size from in to out until ctx ends, and
// then closes out. It always takes what in has: a stream that nobody reads
// would hold up the others of its connection.
func forwardSizes(ctx context.Context, in <-chan remotecommand.TerminalSize, out chan TermSize) {
	defer close(out)
	var newest TermSize
	var to chan TermSize // nil, and so never ready, while there is nothing new
	for {
		select {
		case size, ok := <-in:
			if !ok {
				in = nil
				continue
			}
			newest, to = TermSize{Width: size.Width, Height: size.Height}, out
		case to <- newest:
			to = nil
		case <-ctx.Done():
			return
		}
	}
}
