package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// recoverTime is how long New waits for shims that are being started.
const recoverTime = 10 * time.Second

// recover restores what is on disk.
func (r *Runtime) recover() error {
	sandboxes, err := r.readAll("sandboxes", func(dir string) error {
		box, err := r.readSandbox(dir)
		if err != nil {
			return r.putAside(dir, err)
		}
		r.sandboxes[box.id] = box
		r.names[sandboxName(box.config.GetMetadata())] = box.id
		r.users.adopt(box)
		return nil
	})
	if err != nil {
		return err
	}
	containers, err := r.readAll("containers", r.recoverContainer)
	if err != nil {
		return err
	}
	r.resume()
	r.collectStranded()
	r.collectShared()
	r.spawn(func() { r.removeRest(slices.Concat(sandboxes, containers)) })
	r.logger.WithFields(log.Fields{"sandboxes": len(r.sandboxes), "containers": len(r.containers)}).Info("Adopted containers of an earlier process")
	return nil
}

// readAll reads each directory of a directory. What was not whole yet, or not gone yet,
// has a name with a dot, and is the rest, which goes in the background: it may be much,
// and nothing needs its place.
func (r *Runtime) readAll(kind string, read func(dir string) error) (rest []string, err error) {
	parent := filepath.Join(r.cfg.Root, kind)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			rest = append(rest, dir)
			continue
		}
		if err := read(dir); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// removeRest removes what an earlier runtime has not, until Close.
func (r *Runtime) removeRest(dirs []string) {
	for _, dir := range dirs {
		err := filetree.RemoveUntil(r.ctx, filepath.Dir(dir), filepath.Base(dir))
		if r.ctx.Err() != nil {
			return
		}
		if err != nil {
			r.logger.WithError(err).Warn("Cannot remove what is left of a sandbox or container; the next start tries again")
		}
	}
}

func (r *Runtime) recoverContainer(dir string) error {
	c, err := r.readContainer(dir)
	if err != nil {
		return r.endUnread(dir, err)
	}
	r.containers[c.id] = c
	r.names[containerName(c.sandbox, c.config.GetMetadata())] = c.id
	c.began = shim.HasRecord(dir, shim.IntentFile) && !undoStart(dir)
	var exit shim.Exit
	err = shim.ReadRecord(dir, shim.ExitFile, &exit)
	switch {
	case err == nil:
		c.exit = &exit
		close(c.down)
	case isUnread(err):
		return r.putAside(dir, err) // which fails
	case !errors.Is(err, os.ErrNotExist):
		// It is as if its shim had not written it: see conclude.
		r.logger.WithError(err).WithField("container", c.id).Error("Cannot read how a container ended")
	}
	r.adoptStart(c)
	return nil
}

// undoStart undoes a start that was begun by a runtime that was killed
// before there was a shim, or whose shim was killed, before the command could run,
// and reports whether it did. The lock says that there is no shim and none will come,
// and a shim writes StartedFile before it lets the command run: without that the
// command has not run, and the container can be started still.
func undoStart(dir string) bool {
	lock, err := shim.Lock(dir)
	if err != nil {
		return false // there is a shim, or its supervision finds out
	}
	defer func() { _ = lock.Close() }()
	if shim.HasRecord(dir, shim.StartedFile) || shim.HasRecord(dir, shim.ExitFile) {
		return false
	}
	return errors.Join(os.Remove(filepath.Join(dir, shim.IntentFile)), shim.SyncDir(dir)) == nil
}

// resume follows the containers that were begun, and waits a while until each is
// known to run or to have ended.
func (r *Runtime) resume() {
	var pending []*container
	for _, c := range r.containers {
		if c.began && c.exit == nil {
			pending = append(pending, c)
			r.spawn(func() { r.supervise(c, nil) })
		}
	}
	deadline := time.After(recoverTime)
	for _, c := range pending {
		select {
		case <-c.up:
		case <-c.down:
		case <-deadline:
			r.logger.WithField("container", c.id).Warn("a container's shim does not answer yet")
			return
		}
	}
}
