package kubernetes

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// sender sends input on as client-go does: also what has failed ends there with a close.
type sender struct{ ended chan error }

func (s *sender) Stream(options remotecommand.StreamOptions) error {
	return s.StreamWithContext(context.Background(), options)
}

func (s *sender) StreamWithContext(ctx context.Context, options remotecommand.StreamOptions) error {
	go func() {
		_, err := io.Copy(io.Discard, options.Stdin)
		s.ended <- err
	}()
	select {
	case err := <-s.ended:
		return errors.Join(errors.New("the remote command has the end of its input"), err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stdin is a client that has only input.
type stdin struct {
	api.AttachIO
	io.Reader
}

func (s stdin) Stdin() io.Reader            { return s.Reader }
func (s stdin) Stdout() io.WriteCloser      { return nil }
func (s stdin) Stderr() io.WriteCloser      { return nil }
func (s stdin) TTY() bool                   { return false }
func (s stdin) Resize() <-chan api.TermSize { return nil }

// Input that the client breaks off does not end in the remote cluster as if it were complete.
func TestInputThatIsBrokenOff(t *testing.T) {
	gone := errors.New("the client has gone")
	s := &sender{ended: make(chan error)}
	err := runStreams(t.Context(), s, stdin{Reader: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(gone))})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the session has ended with %v", err)
	}
	if err := <-s.ended; !errors.Is(err, gone) {
		t.Errorf("the input has ended with %v", err)
	}
	if err := runStreams(t.Context(), s, stdin{Reader: strings.NewReader("all")}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a session with all input has ended with %v", err)
	}
}
