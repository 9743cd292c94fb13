package runtime

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// killTime is how long a shim may take to kill its container before the shim
// itself is killed, and what it leaves.
const killTime = 10 * time.Second

// StopContainer implements the CRI: the container's first process gets its stop
// signal, and after timeout seconds all of its processes are killed. The context
// ends the wait, not the container.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	c, err := r.container(id)
	if err != nil {
		// Removed: nothing is left to stop.
		return nil
	}
	return r.stop(ctx, c, timeout)
}

func (r *Runtime) stop(ctx context.Context, c *container, timeout int64) error {
	// A start that is under way comes first; its end is known then.
	c.op.Lock()
	alive := r.isAlive(c)
	c.op.Unlock()
	if !alive {
		return nil
	}
	if timeout > 0 {
		if ended, err := r.stopGently(ctx, c, time.Duration(timeout)*time.Second); ended || err != nil {
			return err
		}
	}
	return r.kill(ctx, c)
}

// dialPause is how long a shim that cannot be reached is left alone.
const dialPause = 100 * time.Millisecond

// stopGently signals the container, and reports whether it has ended in time. While the shim
// cannot be reached, as when this process has too many files open, it is tried again; what
// was sent is not sent again, since the signal may have come.
func (r *Runtime) stopGently(ctx context.Context, c *container, timeout time.Duration) (bool, error) {
	signal := int(stopSignal(c.config.GetStopSignal()))
	end := time.Now().Add(timeout)
	conn, err := shim.Dial(c.dir)
	for err != nil && time.Until(end) > dialPause {
		if ended, err := r.waitDown(ctx, c, dialPause); ended || err != nil {
			return ended, err
		}
		conn, err = shim.Dial(c.dir)
	}
	if err == nil {
		err = r.askOver(conn, shim.Request{Op: shim.OpSignal, Signal: signal})
	}
	if err != nil {
		r.logger.WithError(err).WithField("container", c.id).Debug("cannot signal a container; it has ended, or is killed in time")
	}
	return r.waitDown(ctx, c, time.Until(end))
}

func (r *Runtime) waitDown(ctx context.Context, c *container, timeout time.Duration) (bool, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.down:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, fmt.Errorf("stop container %s: %w", c.id, ctx.Err())
	case <-r.ctx.Done():
		return false, status.Error(codes.Unavailable, "the runtime is closed")
	}
}

// kill kills all of the container's processes. A shim that does not do it is
// killed first. One that has not answered may do it yet, on a busy machine: how the
// container has ended it alone can tell.
func (r *Runtime) kill(ctx context.Context, c *container) error {
	err := r.ask(c, shim.Request{Op: shim.OpKill})
	if ended, waitErr := r.waitDown(ctx, c, killTime); ended || waitErr != nil {
		return waitErr
	}
	r.logger.WithError(err).WithField("container", c.id).Warn("a container's shim does not answer: killing it")
	c.killShim()
	ended, err := r.waitDown(ctx, c, killTime)
	if err == nil && !ended {
		err = status.Errorf(codes.DeadlineExceeded, "container %s cannot be killed: a process of it may wait for a device or a network file system", c.id)
	}
	return err
}

// killShim kills the container's shim, if that is still the process with its
// number.
func (c *container) killShim() {
	c.mu.Lock()
	pid, started := c.shimPID, c.started
	c.mu.Unlock()
	if started != nil {
		_ = procfs.Kill(started.ShimPID, started.ShimStart, unix.SIGKILL)
		return
	}
	// It has not recorded when it was started. It is a child of ours that nobody has
	// waited for, whose number means no other.
	if p, err := procfs.Read(pid); err == nil && p.Parent == os.Getpid() {
		_ = procfs.Kill(p.PID, p.Start, unix.SIGKILL)
	}
}

// stopSignal is the signal that the CRI's number means.
func stopSignal(s runtimeapi.Signal) unix.Signal {
	name := s.String()
	if n := unix.SignalNum(name); n != 0 {
		return n
	}
	const lowest, highest = 34, 64
	var offset int
	if _, err := fmt.Sscanf(name, "SIGRTMINPLUS%d", &offset); err == nil {
		return unix.Signal(lowest + offset)
	}
	if _, err := fmt.Sscanf(name, "SIGRTMAXMINUS%d", &offset); err == nil {
		return unix.Signal(highest - offset)
	}
	switch name {
	case "SIGRTMIN":
		return lowest
	case "SIGRTMAX":
		return highest
	case "SIGCLD":
		return unix.SIGCHLD
	case "SIGIOT":
		return unix.SIGABRT
	case "SIGPOLL":
		return unix.SIGIO
	}
	return unix.SIGTERM
}
