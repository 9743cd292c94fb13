package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

const apiServer = "kube-apiserver"

// stopTimeout is longer than the supervisor gives its four components, also on a busy machine.
const stopTimeout = 2 * time.Minute

// ControlPlane is a running control plane. Its methods may be called from
// several goroutines.
type ControlPlane struct {
	binary     string
	dir        string
	ephemeral  bool
	config     *rest.Config
	supervisor *daemon.Daemon
	stop       func() error // once
}

// Start starts a control plane and returns when pods can be created in it. The
// context limits the start only; Stop ends the control plane.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	c := &ControlPlane{binary: opts.Binary, dir: opts.Dir}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			return nil, fmt.Errorf("make the control plane's data directory: %w", err)
		}
		c.dir, c.ephemeral = dir, true
	}
	c.stop = sync.OnceValue(c.shutdown)

	var err error
	cmd := exec.Command(opts.Binary, opts.flags(c.dir, c.ephemeral)...)
	c.supervisor, _, err = daemon.Start(ctx, "the control plane", cmd, opts.Log, stopTimeout)
	if err != nil {
		return nil, errors.Join(err, c.removeDir())
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return nil, errors.Join(fmt.Errorf("load the administrator's kubeconfig: %w", err), c.Stop())
	}
	c.config.QPS = -1 // the API server's priority and fairness is the limit
	return c, nil
}

// Config returns a new client config of the administrator, without
// client-side throttling.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string {
	return filepath.Join(c.dir, "kubeconfig", "admin.kubeconfig")
}

// Dir returns the data directory; the components' logs are in its directory logs.
func (c *ControlPlane) Dir() string { return c.dir }

// Kubectl returns a command that runs kubectl as the administrator. It reads
// and writes nothing in the user's home directory.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(cmd.Environ(),
		"KUBECONFIG="+c.Kubeconfig(),
		"KUBECACHEDIR="+filepath.Join(c.dir, "kubectl"),
		"KUBERC=off",
	)
	return cmd
}

// RestartAPIServer kills the API server, starts it again on the same port and
// returns when it is ready.
func (c *ControlPlane) RestartAPIServer(ctx context.Context) error {
	return c.control(ctx, "restart")
}

// StopAPIServer kills the API server: until StartAPIServer, its clients get
// "connection refused". It does nothing when the API server is stopped.
func (c *ControlPlane) StopAPIServer(ctx context.Context) error { return c.control(ctx, "stop") }

// StartAPIServer starts the API server again, on the same port, and returns
// when it is ready. It does nothing when the API server runs.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error { return c.control(ctx, "start") }

func (c *ControlPlane) control(ctx context.Context, action string) error {
	out, err := exec.CommandContext(ctx, c.binary, action, apiServer, "--dir", c.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s the API server: %w: %s", action, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Stop stops the control plane and removes a temporary data directory. When it
// returns, no process is left. It returns an error when the control plane had
// ended before, with the reason. More calls return the same.
func (c *ControlPlane) Stop() error { return c.stop() }

func (c *ControlPlane) shutdown() error {
	return errors.Join(c.supervisor.Stop(), c.removeDir())
}

// removeDir removes what a killed supervisor could not.
func (c *ControlPlane) removeDir() error {
	if !c.ephemeral {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the control plane's data directory: %w", err)
	}
	return nil
}
