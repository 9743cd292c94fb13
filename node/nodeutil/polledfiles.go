package nodeutil

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// pollInterval is how long the content of files is used before they are read again.
const pollInterval = time.Second

// polledFiles is the parsed content of files. It reads the files again when the value
// is asked for, so that it needs no goroutine and no end, and no change escapes it
// as one behind symbolic links may escape a watch.
type polledFiles[T any] struct {
	what  string // for the log
	paths []string
	parse func(contents [][]byte) (T, error)

	mu       sync.Mutex
	readAt   time.Time
	contents [][]byte
	value    T
	problem  string // of the last read
}

// pollFiles reads the files, and fails if they cannot be parsed.
func pollFiles[T any](what string, parse func(contents [][]byte) (T, error), paths ...string) (*polledFiles[T], error) {
	f := &polledFiles[T]{what: what, paths: paths, parse: parse}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// read reads the files, and reports whether their content has changed. The value stays
// if they cannot be parsed.
func (f *polledFiles[T]) read() (changed bool, err error) {
	f.readAt = time.Now()
	contents := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		if contents[i], err = os.ReadFile(path); err != nil {
			return false, err
		}
	}
	if slices.EqualFunc(contents, f.contents, bytes.Equal) {
		return false, nil
	}
	value, err := f.parse(contents)
	if err != nil {
		return false, err
	}
	f.contents, f.value = contents, value
	return true, nil
}

// current returns what is in the files, or what was in them when they were last
// right: several files are not replaced at once, and a mistake in a new one must
// not stop a node that serves well. A problem is logged once.
func (f *polledFiles[T]) current(ctx context.Context) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.readAt) < pollInterval {
		return f.value
	}
	logger := log.G(ctx).WithField("files", strings.Join(f.paths, ","))
	changed, err := f.read()
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	switch {
	case changed:
		logger.Info("Using the new " + f.what)
	case problem != "" && problem != f.problem:
		logger.WithError(err).Warn("Cannot use the new " + f.what + "; the old one is used until the files are right")
	}
	f.problem = problem
	return f.value
}
