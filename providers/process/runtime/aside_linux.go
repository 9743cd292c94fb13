package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// brokenDir is where records go that cannot be read.
const brokenDir = "broken"

// isUnread reports whether a file is there, but could not be read, so that nobody knows whether it is broken.
func isUnread(err error) bool {
	var failed *os.PathError
	return errors.As(err, &failed) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
}

// putAside moves a record that is broken to where nobody reads it, and logs it. It
// fails only if that is not possible, or if the record is one that failed to be read.
func (r *Runtime) putAside(path string, why error) error {
	if isUnread(why) {
		return fmt.Errorf("%w: make it readable, or remove %s, which ends what it is of", why, path)
	}
	kept := filepath.Join(r.cfg.Root, brokenDir, fmt.Sprintf("%s-%s-%d", filepath.Base(filepath.Dir(path)), filepath.Base(path), time.Now().UnixNano()))
	err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.Rename(path, kept), shim.SyncDir(filepath.Dir(path)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s cannot be read (%w) and cannot be put aside: %w", path, why, err)
	}
	r.logger.WithError(why).WithField("record", path).WithField("kept", kept).
		Error("Put aside a record that cannot be read; what it was of is as if it had never been")
	return nil
}

// endUnread ends what runs of a container whose record cannot be read, and puts the
// record aside. Its ID is the name of its directory, and marks its processes.
func (r *Runtime) endUnread(dir string, why error) error {
	if isUnread(why) {
		return r.putAside(dir, why) // which fails
	}
	id := filepath.Base(dir)
	c := newContainer(id, dir, "", &runtimeapi.ContainerConfig{}, time.Time{})
	c.spec = &shim.Spec{ID: id, Marker: marker(id), Group: r.groups.Group(id)}
	if r.adoptStart(c) {
		_ = procfs.Kill(c.started.ShimPID, c.started.ShimStart, unix.SIGKILL)
	} else {
		_ = r.ask(c, shim.Request{Op: shim.OpKill})
	}
	if !r.soon(func() { r.killLeftovers(c) }) {
		r.logger.WithField("container", id).Warn("Processes of a container whose record cannot be read do not end yet")
	}
	_ = c.spec.Group.Remove()
	return r.putAside(dir, why)
}

// soon runs f, and reports whether it has ended soon.
func (r *Runtime) soon(f func()) bool {
	done := make(chan struct{})
	if !r.spawn(func() { defer close(done); f() }) {
		return false
	}
	timer := time.NewTimer(recoverTime)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// collectStranded removes containers whose sandbox is not there (its record could
// not be read, or its removal was cut off): nobody would ever ask for them.
func (r *Runtime) collectStranded() {
	r.soon(func() {
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for _, c := range r.allContainers() {
			if _, err := r.sandbox(c.sandbox); err == nil {
				continue
			}
			wg.Go(func() {
				r.logger.WithField("container", c.id).Warn("Removing a container whose sandbox is not there")
				if err := r.remove(ctx, c); err != nil {
					r.logger.WithError(err).WithField("container", c.id).Warn("Cannot remove a container whose sandbox is not there")
				}
			})
		}
		wg.Wait()
	})
}
