package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Relay is a relay with its process. Make one with Start.
type Relay struct {
	path     string
	listener *net.UnixListener
	cancel   context.CancelFunc
	done     chan struct{} // closed when there is no process any more

	mu    sync.Mutex
	stdin io.Closer // of the process
}

// longestPath is that of a socket.
const longestPath = 107

// Start starts a relay for the runtime at an endpoint, a Unix socket. The relay has
// a socket of its own in a directory, which is made; another relay's there is
// replaced. MaybeRelay was called first of all in main.
func Start(ctx context.Context, dir, endpoint string) (*Relay, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "unix" {
		return nil, fmt.Errorf("%s is no Unix socket", endpoint)
	}
	r := &Relay{path: filepath.Join(dir, "cri.sock"), done: make(chan struct{})}
	if len(r.path) > longestPath {
		return nil, fmt.Errorf("the path %s is too long for a socket: it may have %d bytes", r.path, longestPath)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if r.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: r.path, Net: "unix"}); err != nil {
		return nil, err
	}
	if err := os.Chmod(r.path, 0o600); err != nil {
		return nil, errors.Join(err, r.listener.Close())
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { // ends with Close, which waits for it
		defer close(r.done)
		r.keep(ctx, u.Path)
	}()
	return r, nil
}

// Endpoint is where the runtime is to be called.
func (r *Relay) Endpoint() string { return "unix://" + r.path }

// Close ends the relay. Calls that are under way go on.
func (r *Relay) Close() error {
	r.cancel()
	r.mu.Lock()
	if r.stdin != nil {
		_ = r.stdin.Close()
	}
	r.mu.Unlock()
	err := r.listener.Close()
	select {
	case <-r.done:
	case <-time.After(closeTime): // it waits for calls of others
	}
	return err
}

// closeTime is how long Close waits for the process.
const closeTime = time.Second

// keep has a process run all the time.
func (r *Relay) keep(ctx context.Context, runtime string) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := r.runProcess(ctx, runtime)
		if ctx.Err() != nil {
			return
		}
		log.G(ctx).WithError(err).Warn("The relay to the container runtime has ended; starting it again")
		_ = periodic.Sleep(ctx, time.Second-time.Since(begin))
	}
}

func (r *Relay) runProcess(ctx context.Context, runtime string) error {
	listener, err := r.listener.File()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Dir = []string{argument, runtime}, "/"
	cmd.Env = []string{"GOMAXPROCS=2", "GOGC=50", "GOTRACEBACK=all"} // it should cost little
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, stdin.Close())
	}
	r.mu.Lock()
	r.stdin = stdin
	if ctx.Err() != nil {
		_ = stdin.Close()
	}
	r.mu.Unlock()
	return cmd.Wait()
}
