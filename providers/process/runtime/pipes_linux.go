package runtime

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pipes are the streams of a command: our ends, and the ends for the other side.
type pipes struct {
	local, remote []*os.File
	copies        []func()
	inputs        []func()
	outputs       []*os.File
	wg            sync.WaitGroup
}

// input makes a stream that has what in has; nil is nothing.
func (p *pipes) input(in io.Reader) (*os.File, error) {
	if in == nil {
		f, err := os.Open(os.DevNull)
		if err == nil {
			p.remote = append(p.remote, f)
		}
		return f, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.local, p.remote = append(p.local, w), append(p.remote, r)
	p.inputs = append(p.inputs, func() {
		// A reader fails when the client has gone: what has half of its input must not take that for all.
		if _, err := io.Copy(w, in); err == nil {
			_ = w.Close()
		}
	})
	return r, nil
}

// output makes a stream that goes to out; nil is nowhere.
func (p *pipes) output(out io.Writer) (*os.File, error) {
	if out == nil {
		f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err == nil {
			p.remote = append(p.remote, f)
		}
		return f, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.local, p.remote, p.outputs = append(p.local, r), append(p.remote, w), append(p.outputs, r)
	p.copies = append(p.copies, func() { p.copy(out, r) })
	return w, nil
}

// copy copies until the stream ends or drain gives up waiting. Then what is in the
// stream already is copied too, which a slow reader has not taken before.
func (p *pipes) copy(out io.Writer, r *os.File) {
	to := &receiver{out}
	if _, err := io.Copy(to, onlyReader{r}); errors.Is(err, os.ErrDeadlineExceeded) {
		_, _ = io.Copy(to, io.LimitReader(buffered{r}, capacity(r)))
	}
}

// receiver is the client that output is for. When nobody listens any more the rest is thrown
// away, so that the command is not held up.
type receiver struct{ out io.Writer }

func (r *receiver) Write(data []byte) (int, error) {
	if _, err := r.out.Write(data); err != nil {
		r.out = io.Discard
	}
	return len(data), nil
}

// onlyReader hides what else a file can do: copies go by reads, which have deadlines.
type onlyReader struct{ io.Reader }

// buffered reads what a stream has, regardless of its deadline, and waits for nothing.
type buffered struct{ file *os.File }

func (b buffered) Read(data []byte) (n int, err error) {
	raw, err := b.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = unix.Read(int(fd), data) })
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// terminalCapacity is more than the kernel holds of a terminal's output.
const terminalCapacity = 128 << 10

// capacity is how much a stream can hold. More than that was written after its reader
// began to look, maybe without end.
func capacity(r *os.File) int64 {
	size := terminalCapacity
	if raw, err := r.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if n, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil {
				size = n
			}
		})
	}
	return int64(size)
}

// start begins to copy. Input goes on until the caller's reader ends, which may
// be after the command.
func (p *pipes) start(r *Runtime) {
	for _, f := range p.inputs {
		if !r.spawn(f) {
			p.close()
		}
	}
	for _, f := range p.copies {
		p.wg.Go(f)
	}
}

// drain waits for the output, after the command has ended: for its end, or that of ctx,
// and no longer than lateOutput, since what the command has left behind may write for ever.
func (p *pipes) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lateOutput)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		for _, r := range p.outputs {
			_ = r.SetReadDeadline(time.Now())
		}
	})()
	p.wg.Wait()
}

func (p *pipes) closeRemote() {
	for _, f := range p.remote {
		_ = f.Close()
	}
}

func (p *pipes) close() {
	for _, f := range append(p.local, p.remote...) {
		_ = f.Close()
	}
}
