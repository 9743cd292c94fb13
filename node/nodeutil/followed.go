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

// followInterval is how long what was read is used without a look at the files.
const followInterval = time.Second

// followed is what is in files, and follows them. It looks at the files when it
// is asked, so that it needs no goroutine and no end, and no change escapes it
// as one behind symbolic links may escape a watch.
type followed[T any] struct {
	what  string // for the log
	paths []string
	parse func(contents [][]byte) (T, error)

	mu       sync.Mutex
	looked   time.Time
	contents [][]byte
	value    T
	problem  string // of the last look
}

// follow reads the files, and fails where they are no use.
func follow[T any](what string, parse func(contents [][]byte) (T, error), paths ...string) (*followed[T], error) {
	f := &followed[T]{what: what, paths: paths, parse: parse}
	if _, err := f.look(); err != nil {
		return nil, err
	}
	return f, nil
}

// look takes over what is in the files, and tells whether it was new. What is no
// use changes nothing.
func (f *followed[T]) look() (changed bool, err error) {
	f.looked = time.Now()
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
func (f *followed[T]) current(ctx context.Context) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < followInterval {
		return f.value
	}
	logger := log.G(ctx).WithField("files", strings.Join(f.paths, ","))
	changed, err := f.look()
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
