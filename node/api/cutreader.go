package api

import "io"

// cutReader reads the pieces that a longer frame is cut into: of each first the header
// that is made for it, and then its payload, from the connection.
type cutReader struct {
	from    io.Reader
	pending []byte // of the header, to be read
	payload int    // of the current piece, to be read
}

// empty reports whether the next piece has to be prepared.
func (r *cutReader) empty() bool { return len(r.pending) == 0 && r.payload == 0 }

// read reads from the current piece, and reports whether that is payload.
func (r *cutReader) read(p []byte) (n int, ofPayload bool, err error) {
	if len(r.pending) > 0 {
		n = copy(p, r.pending)
		r.pending = r.pending[n:]
		return n, false, nil
	}
	n, err = r.from.Read(p[:min(len(p), r.payload)])
	r.payload -= n
	return n, true, err
}
