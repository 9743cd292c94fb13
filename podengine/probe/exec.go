package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Exec runs commands in containers.
type Exec interface {
	// Exec runs cmd in a container and returns what it wrote to stdout and
	// stderr. It kills the command after timeout; zero means never.
	//
	// The error of a command that failed has a method ExitStatus() int, as
	// those of k8s.io/utils/exec. An error after timeout has passed counts as
	// the timeout; any other means that the command could not be run.
	Exec(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (output []byte, err error)
}

// Syncer is the part of the CRI's RuntimeService that serves Exec.
type Syncer interface {
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// ExecSync makes an Exec from a CRI runtime.
func ExecSync(runtime Syncer) Exec { return execSync{runtime} }

type execSync struct{ runtime Syncer }

func (e execSync) Exec(ctx context.Context, containerID string, cmd []string, timeout time.Duration) ([]byte, error) {
	stdout, stderr, err := e.runtime.ExecSync(ctx, containerID, cmd, timeout)
	return slices.Concat(stdout, stderr), err
}

func (p *Prober) probeExec(ctx context.Context, containerID string, command []string, timeout time.Duration) (Outcome, string, error) {
	begin := time.Now()
	output, err := p.run(ctx, containerID, command, timeout)
	var exit interface{ ExitStatus() int }
	switch {
	case err == nil, errors.As(err, &exit) && exit.ExitStatus() == 0:
		return Success, limited(output), nil
	case exit != nil:
		return Failure, limited(output), nil
	case isTimeout(err) || time.Since(begin) >= timeout:
		return Failure, err.Error(), nil
	}
	return Unknown, "", err
}

func (p *Prober) run(ctx context.Context, containerID string, command []string, timeout time.Duration) ([]byte, error) {
	if p.exec == nil {
		return nil, fmt.Errorf("cannot run %q: this node runs no commands in containers", command)
	}
	return p.exec.Exec(ctx, containerID, command, timeout)
}

// isTimeout knows the errors of a context and of a runtime behind gRPC.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

func limited(output []byte) string { return string(output[:min(len(output), maxOutput)]) }
