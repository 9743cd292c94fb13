package fargate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// output divides the output of a terminal into what the command has printed, its errors, and
// the exit code.
type output struct {
	attach api.AttachIO
	token  string
	held   []byte // may be the beginning of a mark
	begun  bool   // the shell runs the command
	ended  bool
	code   int
}

// maxPreface is how much a shell that does not run the command may print.
const maxPreface = 64 << 10

// write takes the next part of the output, and passes on what is known of it.
func (o *output) write(data []byte) error {
	o.held = append(o.held, data...)
	if !o.begun {
		begin := []byte(mark + o.token + markBegin)
		i := bytes.Index(o.held, begin)
		if i < 0 {
			if len(o.held) > maxPreface {
				return errors.New("the command did not begin")
			}
			return nil
		}
		o.held, o.begun = o.held[i+len(begin):], true
	}
	for !o.ended {
		done, err := o.next()
		if err != nil || !done {
			return err
		}
	}
	return nil
}

// next passes on what is before the next mark, and the mark; it reports whether that was there.
func (o *output) next() (done bool, err error) {
	start := []byte(mark + o.token)
	i := bytes.Index(o.held, start)
	if i < 0 {
		n := len(o.held)
		if at := bytes.LastIndex(o.held, []byte(mark)); at >= 0 && bytes.HasPrefix(start, o.held[at:]) {
			n = at
		}
		if !o.attach.TTY() && n > 0 && o.held[n-1] == '\r' { // of an end of line that is not there yet
			n--
		}
		return false, o.print(o.attach.Stdout(), n)
	}
	if err := o.print(o.attach.Stdout(), i); err != nil {
		return false, err
	}
	rest := o.held[len(start):]
	end := map[bool]string{true: mark, false: "\n"}[bytes.HasPrefix(rest, []byte(markCode))]
	j := bytes.Index(rest, []byte(end))
	if j < 0 {
		return false, nil
	}
	o.held = rest[1:]
	if end == "\n" {
		return true, o.print(o.attach.Stderr(), j)
	}
	o.ended = true
	if o.code, err = strconv.Atoi(string(rest[1:j])); err != nil {
		err = fmt.Errorf("the shell in the container reports no exit code: %w", err)
	}
	return true, err
}

// print prints the first n bytes that are held. What a terminal makes of the end of a line is
// undone, unless the client has one.
func (o *output) print(w io.Writer, n int) error {
	text := o.held[:n]
	o.held = o.held[n:]
	if !o.attach.TTY() {
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	}
	if len(text) == 0 || w == nil {
		return nil
	}
	_, err := w.Write(text)
	return err
}
