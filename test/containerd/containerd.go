package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// stopTimeout is longer than the supervisor gives pods and containerd.
const stopTimeout = 2 * time.Minute

// Containerd is a running containerd. Its methods may be called from several
// goroutines.
type Containerd struct {
	dir        string
	info       info
	supervisor *daemon.Daemon
	stop       func() error // once
}

// info is the line with which the supervisor says that it is ready.
type info struct {
	Endpoint string `json:"endpoint"`
	Gateway  string `json:"gateway"`
	Subnet   string `json:"subnet"`
}

// Start starts a containerd and returns when pods can be made in it. The
// context limits the start only; Stop ends it. An error for a part that the
// machine lacks names the packages to install.
func Start(ctx context.Context, opts Options) (*Containerd, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	if opts.Dir == "" {
		dir, err := os.MkdirTemp("", "containerd-")
		if err != nil {
			return nil, fmt.Errorf("make containerd's directory: %w", err)
		}
		opts.Dir = dir
	}
	c := &Containerd{dir: opts.Dir}
	c.stop = sync.OnceValue(c.shutdown)

	var line []byte
	var err error
	if c.supervisor, line, err = daemon.Start(ctx, "containerd-up", exec.Command(opts.Binary, opts.flags()...), opts.Log, stopTimeout); err != nil {
		// Not RemoveAll: when the supervisor left mounts, it would go into them.
		_ = os.Remove(c.dir)
		return nil, err
	}
	if err := json.Unmarshal(line, &c.info); err != nil {
		return nil, errors.Join(fmt.Errorf("read what containerd-up says: %w: build it again with \"make containerd-up\"", err), c.Stop())
	}
	return c, nil
}

// Endpoint returns the address of the CRI, as "unix://" and a path.
func (c *Containerd) Endpoint() string { return c.info.Endpoint }

// Gateway returns the address of this machine in the pods' network: what
// listens on it can be reached from the pods and from the machine.
func (c *Containerd) Gateway() string { return c.info.Gateway }

// Subnet returns the pods' network, as a CIDR.
func (c *Containerd) Subnet() string { return c.info.Subnet }

// Dir returns the directory of containerd's files. What else is put into it is
// unmounted and removed at the end as well.
func (c *Containerd) Dir() string { return c.dir }

// Stop stops and removes all pods, containerd, and everything that it left on
// the machine. It returns an error when containerd had ended before, with the
// reason. More calls return the same.
func (c *Containerd) Stop() error { return c.stop() }

func (c *Containerd) shutdown() error {
	err := c.supervisor.Stop()
	if _, missing := os.Stat(c.dir); !os.IsNotExist(missing) {
		return errors.Join(err, fmt.Errorf("containerd's directory %s is still there: end what uses it and run \"containerd-up clean --dir %s\"", c.dir, c.dir))
	}
	return err
}
