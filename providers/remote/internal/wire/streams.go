package wire

import (
	"errors"
	"io"
	"sync"
)

// chunk is the most bytes of a session that one message has.
const chunk = 32 << 10

// MaxMessage is the size in bytes of the largest message that either side takes.
const MaxMessage = 16 << 20

// MaxPod is the size in bytes of the largest pod that a provider is sent: it is sent back in a
// message, with its status, and as three times as many bytes by encoders that write ASCII alone.
const MaxPod = 4 << 20

// Writer sends what is written to it in messages. Writers with the same Mutex take turns,
// as the streams of gRPC need it.
type Writer struct {
	*sync.Mutex
	Send func(data []byte) error
}

// Write implements io.Writer.
func (w Writer) Write(data []byte) (n int, err error) {
	w.Lock()
	defer w.Unlock()
	for len(data) > 0 {
		part := data[:min(len(data), chunk)]
		if err := w.Send(part); err != nil {
			return n, FromStatus(err)
		}
		n, data = n+len(part), data[len(part):]
	}
	return n, nil
}

// Close does nothing: the end of a stream is a message of its own.
func (Writer) Close() error { return nil }

// Reader reads what messages carry. It is for one goroutine at a time.
type Reader struct {
	// Receive returns the data of the next message, and io.EOF after the last.
	Receive func() ([]byte, error)
	left    []byte
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		data, err := r.Receive()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, FromStatus(err)
		}
		r.left = data
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}
