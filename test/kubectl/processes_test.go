//go:build integration

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

var _ nodeutil.Provider = (*processes)(nil)

// processes is the mock provider, with real processes for exec and attach and
// real connections for port-forward. A pod is a directory, in which its
// processes run; its network is that of the test. The main process of a
// container is started when somebody attaches to it.
type processes struct {
	*mock.Provider
	dir      string       // has the pods' directories
	followed atomic.Int32 // logs that somebody began to follow

	mu   sync.Mutex
	pods map[types.NamespacedName]sandbox
}

// sandbox is what a pod has beside what the mock knows.
type sandbox struct {
	dir     string
	running context.Context // ends with the pod, and with it all of its processes
	stop    context.CancelFunc
}

func newProcesses(m *mock.Provider, dir string) *processes {
	return &processes{Provider: m, dir: dir, pods: map[types.NamespacedName]sandbox{}}
}

// refused is the name of pods that the provider never has room for.
const refused = "refused"

func (p *processes) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	if pod.Name == refused {
		return errdefs.AsUnavailable(errors.New("there is no room"))
	}
	s := sandbox{dir: filepath.Join(p.dir, string(pod.UID))}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	if err := p.Provider.CreatePod(ctx, pod); err != nil {
		return errors.Join(err, os.Remove(s.dir))
	}
	s.running, s.stop = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = s
	return nil
}

func (p *processes) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if s, ok := p.pods[name]; ok {
		s.stop()
		delete(p.pods, name)
	}
	return p.Provider.DeletePod(ctx, pod)
}

// GetContainerLogs is the mock's, and counts.
func (p *processes) GetContainerLogs(ctx context.Context, namespace, pod, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	log, err := p.Provider.GetContainerLogs(ctx, namespace, pod, container, opts)
	if err == nil && opts.Follow {
		p.followed.Add(1)
	}
	return log, err
}

func (p *processes) sandbox(namespace, pod string) (sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.pods[types.NamespacedName{Namespace: namespace, Name: pod}]
	if !ok {
		return sandbox{}, errdefs.NotFoundf("pod %s/%s does not exist", namespace, pod)
	}
	return s, nil
}

// RunInContainer runs the command in the pod's directory.
func (p *processes) RunInContainer(ctx context.Context, namespace, pod, _ string, command []string, attach api.AttachIO) error {
	s, err := p.sandbox(namespace, pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.running, cancel)()
	return runProcess(ctx, s.dir, command, attach)
}

// AttachToContainer runs the container's own command.
func (p *processes) AttachToContainer(ctx context.Context, namespace, pod, container string, attach api.AttachIO) error {
	command, err := p.commandOf(ctx, namespace, pod, container)
	if err != nil {
		return err
	}
	return p.RunInContainer(ctx, namespace, pod, container, command, attach)
}

func (p *processes) commandOf(ctx context.Context, namespace, name, container string) ([]string, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return append(c.Command, c.Args...), nil
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == container {
			return append(c.Command, c.Args...), nil
		}
	}
	return nil, errdefs.NotFoundf("container %s not found in pod %s", container, name)
}

// PortForward connects to the port on the loopback address.
func (p *processes) PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
	s, err := p.sandbox(namespace, pod)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	hangUp := func() { _ = conn.Close() }
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	defer context.AfterFunc(s.running, hangUp)()
	go func() { // ends with the stream
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

// runProcess runs a command with the client's streams. When ctx ends, or the
// command does, it and all that it has started are killed.
func runProcess(ctx context.Context, dir string, command []string, attach api.AttachIO) error {
	if len(command) == 0 {
		return errdefs.InvalidInput("there is no command to run")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PS1=$ ")
	killAll := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killAll
	cmd.WaitDelay = patience // for a client that is slow to take the output
	var err error
	if attach.TTY() {
		err = runOnTerminal(cmd, attach)
	} else {
		err = runOnPipes(cmd, attach)
	}
	if cmd.Process != nil {
		_ = killAll()
	}
	return exitCode(err)
}

func runOnPipes(cmd *exec.Cmd, attach api.AttachIO) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = attach.Stdout(), attach.Stderr()
	in := attach.Stdin()
	if in == nil {
		return cmd.Run()
	}
	// Not cmd.Stdin: Wait would wait for the end of the input too.
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the client's streams
		_, _ = io.Copy(pipe, in)
		_ = pipe.Close()
	}()
	return cmd.Wait()
}

func runOnTerminal(cmd *exec.Cmd, attach api.AttachIO) error {
	terminal, err := pty.Start(cmd) // makes a session, and so a process group
	if err != nil {
		return err
	}
	defer terminal.Close()
	stopResizing := followSize(terminal, attach.Resize())
	if in := attach.Stdin(); in != nil {
		go func() { _, _ = io.Copy(terminal, in) }()
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		_, _ = io.Copy(attach.Stdout(), terminal) // to the end of the last process on it
	}()
	err = cmd.Wait()
	stopResizing()
	select {
	case <-printed:
	case <-time.After(cmd.WaitDelay):
		_ = terminal.Close()
		<-printed
	}
	return err
}

// followSize gives the terminal the client's size, until the function that it
// returns is called.
func followSize(terminal *os.File, sizes <-chan api.TermSize) (stop func()) {
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case size, ok := <-sizes:
				if !ok {
					return
				}
				_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
			case <-ended:
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-stopped
	}
}

// exitCode turns what os/exec says into the codes that a shell has.
func exitCode(err error) error {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return utilexec.CodeExitError{Err: err, Code: 127}
	case errors.Is(err, exec.ErrWaitDelay):
		return nil
	case !errors.As(err, &exit):
		return err
	}
	code := exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: code}
}
