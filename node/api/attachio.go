package api

import (
	"context"
	"encoding/json"
	"io"
)

// AttachIO is what connects a process in a container with a client. The streams
// are valid until the provider's function returns.
type AttachIO interface {
	// Stdin is nil unless the client has input. Its Read ends with io.EOF when
	// the client has sent it all, and with another error when the client has
	// gone or breaks its input off, which both end the context.
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

// newAttachIO shows a provider the streams that client has. They end with ctx, which a
// client cancels that breaks its input off.
func newAttachIO(ctx context.Context, cancel context.CancelFunc, client *execClient, tty bool) *attachIO {
	a := &attachIO{tty: tty, resize: make(chan TermSize)}
	stream := func(s io.ReadWriteCloser) *clientStream {
		return &clientStream{ctx: ctx, cancel: cancel, ReadWriteCloser: s}
	}
	if client.stdin != nil {
		a.stdin = stream(client.stdin)
	}
	if client.stdout != nil {
		a.stdout = stream(client.stdout)
	}
	if client.stderr != nil {
		a.stderr = stream(client.stderr)
	}
	return a
}

// maxSizeText is more than the JSON of a size needs.
const maxSizeText = 4 << 10

// readSizes decodes the sizes that come from r, which may be nil. It always
// reads on, also after something that is no size: a stream that nobody reads
// would hold up the others of its connection.
func readSizes(ctx context.Context, r io.Reader) <-chan TermSize {
	if r == nil {
		return nil
	}
	sizes := make(chan TermSize)
	go func() { // ends with r, which the connection's end closes
		defer func() { _, _ = io.Copy(io.Discard, r) }()
		defer close(sizes)
		limited := &io.LimitedReader{R: r}
		decoder := json.NewDecoder(limited)
		for {
			limited.N = maxSizeText
			var size TermSize
			if decoder.Decode(&size) != nil {
				return
			}
			select {
			case sizes <- size:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}

// forwardSizes passes on the newest size from in to out until ctx ends, and
// then closes out.
func forwardSizes(ctx context.Context, in <-chan TermSize, out chan TermSize) {
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
			newest, to = size, out
		case to <- newest:
			to = nil
		case <-ctx.Done():
			return
		}
	}
}
