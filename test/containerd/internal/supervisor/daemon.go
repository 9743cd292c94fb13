//go:build linux

package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// removeTimeout bounds the orderly end of all pods; the cleaner does the rest.
	removeTimeout = 30 * time.Second
	// termTimeout is how long containerd may take to end.
	termTimeout = 10 * time.Second
)

// daemon is a running containerd.
type daemon struct {
	config config
	log    string
	cmd    *exec.Cmd
	cri    runtimeapi.RuntimeServiceClient
	conn   *grpc.ClientConn
	done   chan struct{} // closed when the process is gone
	err    error         // of the process, valid after done
	stop   func()        // once
}

func startDaemon(c config, logFile string) (*daemon, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open containerd's log: %w", err)
	}
	defer log.Close()
	d := &daemon{config: c, log: logFile, done: make(chan struct{})}
	d.conn, err = grpc.NewClient(d.endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("make a client of containerd: %w", err)
	}
	d.cri = runtimeapi.NewRuntimeServiceClient(d.conn)

	d.cmd = exec.Command("containerd", "--config", c.file())
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// A Ctrl-C in the terminal must reach the supervisor alone.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		_ = d.conn.Close()
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()
	d.stop = sync.OnceFunc(d.shutdown)
	return d, nil
}

func (d *daemon) endpoint() string { return "unix://" + d.config.socket() }

// ended says how the process ended; valid after done.
func (d *daemon) ended() error {
	state := "exit status 0"
	if d.err != nil {
		state = d.err.Error()
	}
	return fmt.Errorf("containerd ended by itself (%s); the end of its log: %s", state, tail(d.log))
}

// prepare returns when pods can be made.
func (d *daemon) prepare(ctx context.Context, opts Options) error {
	if err := d.waitReady(ctx); err != nil {
		return err
	}
	for _, image := range opts.Images {
		progress("importing %s", image)
		cmd := exec.CommandContext(ctx, "ctr", "--address", d.config.socket(), "--namespace", "k8s.io", "images", "import", image)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import the images in %s: %w: %s", image, err, bytes.TrimSpace(out))
		}
	}
	progress("containerd is ready at %s", d.endpoint())
	return nil
}

// waitReady returns when the runtime and its network are ready.
func (d *daemon) waitReady(ctx context.Context) error {
	last := "it does not answer"
	for {
		status, err := d.cri.Status(ctx, &runtimeapi.StatusRequest{})
		ready := err == nil
		if err != nil {
			last = err.Error()
		}
		for _, condition := range status.GetStatus().GetConditions() {
			if !condition.Status {
				ready, last = false, condition.String()
			}
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for containerd: %w (last: %s)", context.Cause(ctx), last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// removePods stops and removes all pods in order, so that runc and the CNI
// plugins take back what they made. It says whether containerd answered.
func (d *daemon) removePods() bool {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	list, err := d.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return false
	}
	// runc removes a container's group, but not those above it, which it made
	// for the first of a pod.
	ids, _ := containers(d.config.Dir)
	groups := findCgroups(ids)
	defer func() { removeCgroups(groups) }()
	var group errgroup.Group
	group.SetLimit(8)
	for _, sandbox := range list.Items {
		group.Go(func() error {
			if _, err := d.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
				return fmt.Errorf("stop the pod %s: %w", sandbox.Metadata.GetName(), err)
			}
			_, err := d.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.Id})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		progress("leaving pods to the cleaner: %v", err)
	}
	return true
}

func (d *daemon) shutdown() {
	_ = d.conn.Close()
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone
	select {
	case <-d.done:
	case <-time.After(termTimeout):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}

// tail returns the end of a file.
func tail(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(data[max(0, len(data)-2048):])
}
