package runtime

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// slow is a reader of output that takes its time.
type slow struct{ bytes.Buffer }

func (s *slow) Write(data []byte) (int, error) {
	time.Sleep(2 * lateOutput)
	return s.Buffer.Write(data)
}

// heldOpen are pipes with an output that something has written to, and holds on to.
func heldOpen(t *testing.T, out io.Writer, written []byte) *pipes {
	t.Helper()
	p := &pipes{}
	t.Cleanup(p.close)
	w, err := p.output(out)
	if err == nil {
		_, err = w.Write(written)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What was written before the command's end is delivered whole, as much as a pipe holds,
// also if its reader takes longer than late output is waited for.
func TestDrainForASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := bytes.Repeat([]byte("x"), 64<<10)
		out := &slow{}
		p := heldOpen(t, out, written)
		p.start(nil)
		p.drain(t.Context())
		if !bytes.Equal(out.Bytes(), written) {
			t.Errorf("%d bytes of %d were delivered", out.Len(), len(written))
		}
	})
}

// Input that a client breaks off does not end as if it were complete.
func TestInputThatIsBrokenOff(t *testing.T) {
	for _, end := range []error{io.EOF, errors.New("the client has gone")} {
		var p pipes
		t.Cleanup(p.close)
		r, err := p.input(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(end)))
		if err != nil {
			t.Fatal(err)
		}
		p.inputs[0]()
		if _, err := io.ReadFull(r, make([]byte, len("half"))); err != nil {
			t.Fatal(err)
		}
		if _, err := (buffered{r}).Read(make([]byte, 1)); errors.Is(err, io.EOF) != (end == io.EOF) {
			t.Errorf("after %v, the command's input ends with %v", end, err)
		}
	}
}

// The caller that waits for late output may give up: time stands still here as long as somebody
// reads from a pipe, so that nothing else can end it.
func TestDrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &bytes.Buffer{}
		p := heldOpen(t, out, []byte("out"))
		p.start(nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.drain(ctx)
		if out.String() != "out" {
			t.Errorf("%q", out.String())
		}
	})
}

// Of a stream that goes on without end, no more is read than it could hold when its
// command ended.
func TestBufferedReadsNoMoreThanThereIs(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if n, err := (buffered{r}).Read(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("of an empty pipe: %d bytes, %v", n, err)
	}
	if got := capacity(r); got < 4<<10 {
		t.Errorf("a pipe holds %d bytes", got)
	}
}
