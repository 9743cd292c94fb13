package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// Config is the provider's configuration, as its file has it, in YAML or JSON.
type Config struct {
	machine.Config `json:",inline"`

	// Runtime says how processes run, and what they may. Its Root, NodeIPs,
	// HostPaths and CgroupParent are the provider's where they are empty.
	Runtime runtime.Config `json:"runtime,omitempty"`

	// EndPodsOnExit ends all pods when the provider is closed. By default they
	// run on, and the next one takes them up again.
	EndPodsOnExit bool `json:"endPodsOnExit,omitempty"`
}

// exitGrace is what pods are given with EndPodsOnExit.
const exitGrace = 2 * time.Second

// ParseConfig reads a configuration. It is strict: the error, of class InvalidInput, names
// all unknown fields and invalid values. Empty data is an empty configuration.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if err := config.Decode(data, &cfg, cfg.Validate); err != nil {
		return Config{}, errdefs.InvalidInputf("process config: %w", err)
	}
	return cfg, nil
}

// complete fills in defaults.
func (cfg *Config) complete(n machine.Node) {
	cfg.Complete(n.Name)
	if cfg.EvictionHard == nil { // less than a kubelet's: it may be anybody's computer
		cfg.EvictionHard = map[string]string{"memory.available": "100Mi", "nodefs.available": "5%", "nodefs.inodesFree": "2%"}
	}
	r := &cfg.Runtime
	if r.Root == "" {
		r.Root = filepath.Join(cfg.Root, "runtime")
	}
	if len(r.NodeIPs) == 0 {
		r.NodeIPs = n.HostIPs()
	}
	if len(r.HostPaths) == 0 {
		r.HostPaths = cfg.HostPaths
	}
	if r.CgroupParent == "" {
		r.CgroupParent = cfg.CgroupParent
	}
	cfg.NoLinksFollowed = true // see package shim
	r.VolumeDirs = []string{filepath.Join(cfg.Root, "pods")}
	r.Hidden = []string{cfg.Root, cfg.LogRoot}
}

// Provider runs pods as processes. Make one with New.
type Provider struct {
	*machine.Engine
	runtime *runtime.Runtime
	endPods bool
}

// New goes on with the processes that an earlier one left, and says in n.Node
// what the machine has. runtime.MaybeShim was called first of all in main.
func New(ctx context.Context, n machine.Node, cfg Config) (*Provider, error) {
	cfg.complete(n)
	r, err := runtime.New(ctx, cfg.Runtime)
	if err != nil {
		return nil, fmt.Errorf("cannot run processes as containers: %w", err)
	}
	engine, err := machine.NewEngine(ctx, n, cfg.Config, machine.ImageConfig{}, r, r, func(c *podengine.Config) {
		c.Streams = r.Streams()
	})
	if err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	return &Provider{engine, r, cfg.EndPodsOnExit}, nil
}

// Close ends the provider. Processes run on, unless EndPodsOnExit is set.
func (p *Provider) Close() error {
	var errs []error
	if p.endPods {
		ctx, cancel := context.WithTimeout(context.Background(), 10*exitGrace)
		defer cancel()
		errs = append(errs, p.EndAll(ctx, exitGrace))
	}
	return errors.Join(append(errs, p.Engine.Close(), p.runtime.Close(context.Background()))...)
}
