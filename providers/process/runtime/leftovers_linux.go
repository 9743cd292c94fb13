package runtime

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// killLeftovers kills what is left of a container whose shim is gone: what is in
// its control group, has its marker in the environment or is in its session, and
// all that descends from these. It reports whether nothing is left.
func (r *Runtime) killLeftovers(c *container) bool {
	var intent shim.Intent
	if shim.ReadRecord(c.dir, shim.IntentFile, &intent) == nil && intent.BootID != r.bootID {
		// The machine was booted since: numbers mean other processes now.
		return true
	}
	// A process that is just becoming another program has no environment for a
	// moment, so that none may be seen twice before none is left.
	none := 0
	for pause := time.Millisecond; r.ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		left, err := r.leftovers(c)
		switch {
		case err != nil:
			r.logger.WithError(err).WithField("container", c.id).Warn("cannot see what is left of a container without shim; trying again")
		case len(left) > 0:
			none = 0
		case none > 0:
			return true
		default:
			none++
			pause = 10 * time.Millisecond
		}
		c.spec.Group.Kill()
		for _, p := range left {
			if err := procfs.Kill(p.PID, p.Start, unix.SIGKILL); err != nil {
				r.logger.WithError(err).WithField("container", c.id).Warn("cannot kill a process of a container without shim; trying again")
			}
		}
		time.Sleep(pause)
	}
	return false
}

func (r *Runtime) leftovers(c *container) ([]procfs.Process, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, err
	}
	in := map[int]bool{}
	for _, pid := range c.spec.Group.Processes() {
		in[pid] = true
	}
	inSession := c.sessionTest(all)
	for _, p := range all {
		if !in[p.PID] && (inSession(p) || procfs.HasEnv(p.PID, c.spec.Marker)) {
			in[p.PID] = true
		}
	}
	isRoot := func(p procfs.Process) bool { return in[p.PID] }
	var left []procfs.Process
	for _, p := range append(procfs.Below(all, isRoot), where(all, isRoot)...) {
		if !p.Dead() {
			left = append(left, p)
		}
	}
	return left, nil
}

func where(all []procfs.Process, match func(procfs.Process) bool) []procfs.Process {
	var some []procfs.Process
	for _, p := range all {
		if match(p) {
			some = append(some, p)
		}
	}
	return some
}

// sessionTest reports whether a process is in the session of the container's
// command. The number of a session may have been used again, so that it must be
// as young as the container and of the same user.
func (c *container) sessionTest(all []procfs.Process) func(procfs.Process) bool {
	c.mu.Lock()
	started := c.started
	c.mu.Unlock()
	if started == nil {
		return func(procfs.Process) bool { return false }
	}
	for _, p := range all {
		if p.PID == started.PID && p.Start != started.Start {
			return func(procfs.Process) bool { return false }
		}
	}
	return func(p procfs.Process) bool {
		if p.Session != started.PID || p.Start < started.Start {
			return false
		}
		owner, err := procfs.Owner(p.PID)
		return err == nil && (c.spec.Command.User == nil || owner == c.spec.Command.User.UID)
	}
}
