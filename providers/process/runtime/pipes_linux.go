package runtime

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// pipes are the streams of a command: our ends, and the ends for the other side.
type pipes struct {
	local, remote []*os.File
	copies        []func()
	inputs        []func()
	ended         atomic.Bool
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
		_, _ = io.Copy(w, in)
		_ = w.Close()
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

// copy copies until the stream ends, or nothing came for a while after the
// command had ended.
func (p *pipes) copy(out io.Writer, r *os.File) {
	buffer := make([]byte, 32<<10)
	for {
		if p.ended.Load() {
			_ = r.SetReadDeadline(time.Now().Add(lateOutput))
		}
		n, err := r.Read(buffer)
		if n > 0 {
			if _, err := out.Write(buffer[:n]); err != nil {
				// Nobody listens: read on, so that the command is not held up.
				out = io.Discard
			}
		}
		if err != nil {
			return
		}
	}
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

// drain waits for the output, after the command has ended.
func (p *pipes) drain() {
	p.ended.Store(true)
	for _, r := range p.outputs {
		_ = r.SetReadDeadline(time.Now().Add(lateOutput))
	}
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
