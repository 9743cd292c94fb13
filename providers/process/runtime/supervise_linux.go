package runtime

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// supervise follows a container from the start of its shim to its end, or until
// Close. report is nil for one that was started before a restart.
func (r *Runtime) supervise(c *container, report *report) {
	if report != nil && report.wait(r.ctx) == nil {
		r.markStarted(c)
	}
	for pause := time.Millisecond; r.ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
		lock, err := shim.Lock(c.dir)
		if err == nil || errors.Is(err, os.ErrNotExist) && !c.shimAlive() {
			err = r.conclude(c)
			_ = lock.Close()
			if err == nil {
				break
			}
		}
		if !errors.Is(err, shim.ErrRuns) && !errors.Is(err, os.ErrNotExist) {
			r.logger.WithError(err).WithField("container", c.id).Error("cannot see whether a container's shim runs, or how it ended; trying again")
		}
		if r.watch(c) {
			pause = time.Millisecond
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(pause):
		}
	}
	if report != nil {
		r.reap(report)
	} else {
		reapAdopted(c)
	}
}

// shimAlive reports whether the shim is there, where no lock shows it.
func (c *container) shimAlive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started != nil && procfs.Alive(c.started.ShimPID, c.started.ShimStart)
}

// watch is connected to the shim until that ends. It reports whether it was.
func (r *Runtime) watch(c *container) bool {
	conn, err := shim.Dial(c.dir)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(r.ctx, func() { _ = conn.Close() })()
	var response shim.Response
	if conn.Send(shim.Request{Op: shim.OpWatch}) != nil || conn.Receive(&response) != nil {
		return false
	}
	r.markStarted(c)
	_ = conn.Receive(&response)
	return true
}

// markStarted takes over what the shim has written of its start.
func (r *Runtime) markStarted(c *container) {
	if !r.adoptStart(c) {
		return
	}
	c.upOnce.Do(func() {
		close(c.up)
		r.publishOf(c, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	})
}

// conclude takes over how a container ended, whose shim is gone. One that was
// not written down ended with its shim: what it left is killed. It is an error if
// the end may be written down, and fails to be read.
//
// The container's lock is held, so that nothing is started meanwhile, unless
// somebody has removed its directory.
func (r *Runtime) conclude(c *container) error {
	var exit shim.Exit
	err := shim.ReadRecord(c.dir, shim.ExitFile, &exit)
	if isUnread(err) {
		return err
	}
	if err == nil {
		r.adoptStart(c)
		r.setExit(c, exit)
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		r.logger.WithError(err).WithField("container", c.id).Error("cannot read how a container ended")
	}
	r.adoptStart(c)
	if !r.killLeftovers(c) {
		// Closed meanwhile: the next runtime does it.
		return nil
	}
	r.end(c, shim.Exit{
		Code: 137, Signal: int(unix.SIGKILL), Reason: shim.ReasonUnknown, Time: time.Now(),
		Message: "the container's shim ended without a word on how the container did; what was left of it was killed",
	})
	return nil
}

// adoptStart reads what was started, and reports whether something was.
func (r *Runtime) adoptStart(c *container) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started != nil {
		return true
	}
	var started shim.Started
	if shim.ReadRecord(c.dir, shim.StartedFile, &started) != nil {
		return false
	}
	c.started = &started
	return true
}

// end writes down how a container ended, in place of its shim.
func (r *Runtime) end(c *container, exit shim.Exit) {
	if err := shim.WriteRecord(c.dir, shim.ExitFile, exit); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.logger.WithError(err).WithField("container", c.id).Error("cannot write how a container ended")
	}
	r.setExit(c, exit)
}

func (r *Runtime) setExit(c *container, exit shim.Exit) {
	c.mu.Lock()
	first := c.exit == nil
	if first {
		c.exit = &exit
	}
	c.mu.Unlock()
	if !first {
		return
	}
	_ = c.spec.Group.Remove()
	close(c.down)
	r.logger.WithFields(log.Fields{"container": c.id, "name": c.config.GetMetadata().GetName(), "code": exit.Code, "reason": exit.Reason}).
		Debug("container ended")
	r.publishOf(c, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// reap waits for a shim of ours, so that no zombie is left. After Close it runs
// on, and is not waited for.
func (r *Runtime) reap(report *report) {
	if r.ctx.Err() == nil {
		_ = report.cmd.Wait()
		return
	}
	_ = report.cmd.Process.Release()
}

// reapAdopted does the same for a shim that an earlier runtime of this process
// has started, or that is our child because we are the first process.
func reapAdopted(c *container) {
	c.mu.Lock()
	started := c.started
	c.mu.Unlock()
	if started == nil {
		return
	}
	for range 50 {
		p, err := procfs.Read(started.ShimPID)
		if err != nil || p.Start != started.ShimStart || p.Parent != os.Getpid() {
			return
		}
		if pid, _ := syscall.Wait4(started.ShimPID, nil, syscall.WNOHANG, nil); pid != 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
