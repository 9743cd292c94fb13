package nomad

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/url"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lastlines"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// maxPart is the size up to which the beginning of a line waits for its end.
	maxPart = 32 << 10
	// firstTail is how much of the end of a log is read at first for its last lines.
	firstTail = 64 << 10
	// maxRemovals is how often files of a log may be removed during a read.
	maxRemovals = 5
)

// errRemoved is the error of a read that meets files which Nomad removes.
var errRemoved = errdefs.AsUnavailable(errors.New("files of the log are removed while they are read"))

// taskStream is one of the logs of a task, as far as it was read. Nomad writes it to files
// of a limited size, and removes the oldest ones. An offset counts from the oldest that
// there is at the time.
type taskStream struct {
	log   *taskLog
	name  string
	files []logFile // which were read, from the oldest on that there was last
	rest  []byte    // the beginning of a line, which was not copied yet
}

// logFile is a file, and how much of it was read.
type logFile struct {
	path string
	read int64
}

// open requests the log from an offset on, which counts from its start or end, in frames,
// which name the files.
func (s *taskStream) open(ctx context.Context, origin string, offset int64) (io.ReadCloser, error) {
	q := url.Values{"task": {s.log.task}, "type": {s.name}, "origin": {origin}, "offset": {strconv.FormatInt(offset, 10)}}
	body, err := s.log.b.api.Raw().Response("/v1/client/fs/logs/"+url.PathEscape(s.log.alloc)+"?"+q.Encode(), query(ctx))
	return body, classify(podgroup.ActionLog, err)
}

// lastLines returns the last lines, for which it does not read the whole log.
func (s *taskStream) lastLines(ctx context.Context, count int) ([]byte, error) {
	for size := int64(firstTail); ; size *= 8 {
		answer, err := s.open(ctx, api.OriginEnd, size)
		if err != nil {
			return nil, err
		}
		tail, read, ends := &lastlines.Writer{Lines: count}, int64(0), 0
		for frame, err := range frames(answer) {
			if err != nil {
				return nil, err
			}
			read += int64(len(frame.Data))
			ends += bytes.Count(frame.Data, []byte("\n"))
			_, _ = tail.Write(frame.Data) // it has no errors
		}
		if read < size || ends > count { // the first line may be the end of one
			return tail.Bytes(), nil
		}
	}
}

// copyTo copies what was not read yet, of which the answer is if there is one, and what
// follows the last whole line only if the log is complete.
func (s *taskStream) copyTo(ctx context.Context, w io.Writer, answer io.ReadCloser, isComplete bool) error {
	err := s.copyFrames(ctx, w, answer)
	for n := 0; errors.Is(err, errRemoved) && n < maxRemovals; n++ {
		if err = s.forgetRemoved(ctx); err == nil {
			err = s.copyFrames(ctx, w, nil)
		}
	}
	if err != nil || !isComplete {
		return err
	}
	return s.write(w, len(s.rest))
}

// copyFrames is copyTo without another try after errRemoved. It reads the last byte before
// what is new once more: where that is shows whether the offset was right.
func (s *taskStream) copyFrames(ctx context.Context, w io.Writer, answer io.ReadCloser) error {
	again := int64(0)
	if len(s.files) > 0 {
		again = 1
	}
	if answer == nil {
		var err error
		if answer, err = s.open(ctx, api.OriginStart, s.offset()-again); err != nil {
			return err
		}
	}
	for frame, err := range frames(answer) {
		if err != nil {
			return err
		}
		if !s.accept(&frame, again) {
			return errRemoved
		}
		s.rest = append(s.rest, frame.Data[again:]...)
		again = 0
		whole := bytes.LastIndexByte(s.rest, '\n') + 1
		if len(s.rest)-whole > maxPart {
			whole = len(s.rest)
		}
		if err := s.write(w, whole); err != nil {
			return err
		}
	}
	if again > 0 {
		return errRemoved
	}
	return nil
}

// offset returns where in the log of Nomad what was not read yet begins.
func (s *taskStream) offset() (sum int64) {
	for _, file := range s.files {
		sum += file.read
	}
	return sum
}

// accept records that a frame was read, which begins with some bytes that were read before.
// It returns false if the frame is not the next one.
func (s *taskStream) accept(frame *api.StreamFrame, again int64) bool {
	size := int64(len(frame.Data))
	// The offset of a frame is the end of what Nomad read for it first, to which it may have
	// added more.
	beginsAt := func(offset int64) bool { return offset <= frame.Offset && frame.Offset <= offset+size }
	last := len(s.files) - 1
	switch isLast := last >= 0 && frame.File == s.files[last].path; {
	case again > 0 && !(isLast && beginsAt(s.files[last].read-again)):
		return false
	case isLast:
		s.files[last].read += size - again
		return true
	case last >= 0 && !beginsAt(0):
		return false
	}
	s.files = append(s.files, logFile{frame.File, size})
	return true
}

// forgetRemoved forgets the files that Nomad has removed. If these are all, the end of the
// last line is lost.
func (s *taskStream) forgetRemoved(ctx context.Context) error {
	answer, err := s.open(ctx, api.OriginStart, 0)
	if err != nil {
		return err
	}
	oldest := len(s.files)
	for frame, err := range frames(answer) {
		if err != nil {
			return err
		}
		if at := slices.IndexFunc(s.files, func(f logFile) bool { return f.path == frame.File }); at >= 0 {
			oldest = at
		}
		break
	}
	if s.files = s.files[oldest:]; len(s.files) == 0 {
		s.rest = nil
	}
	return nil
}

// write writes so much of what was read.
func (s *taskStream) write(w io.Writer, size int) error {
	if size == 0 {
		return nil // an empty write would wait for a reader
	}
	_, err := w.Write(s.rest[:size])
	s.rest = append(s.rest[:0], s.rest[size:]...)
	return err
}

// frames returns the frames of an answer that have data, and closes it at the end.
func frames(answer io.ReadCloser) iter.Seq2[api.StreamFrame, error] {
	return func(yield func(api.StreamFrame, error) bool) {
		defer answer.Close()
		for decoder := json.NewDecoder(answer); ; {
			var frame api.StreamFrame
			err := decoder.Decode(&frame)
			switch {
			case err == io.EOF:
				return
			case err != nil:
				yield(frame, errdefs.AsUnavailable(err))
				return
			case len(frame.Data) > 0 && !yield(frame, nil):
				return
			}
		}
	}
}
