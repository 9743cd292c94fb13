package cri

import (
	"errors"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/cri/internal/podcgroup"
)

const (
	// defaultCgroupParent is not a kubelet's: a kubelet on the same machine ends what
	// is in its own and is no pod that it knows.
	defaultCgroupParent = "/vkpods"
	// Where log collectors look for the logs of a kubelet's pods.
	defaultLogRoot  = "/var/log/pods"
	defaultLogLinks = "/var/log/containers"
)

// CgroupDriver is who makes control groups, and how they are named.
type CgroupDriver = podcgroup.Driver

// The drivers of container runtimes.
const (
	Cgroupfs CgroupDriver = podcgroup.Cgroupfs
	Systemd  CgroupDriver = podcgroup.Systemd
)

// Config is the provider's configuration, as its file has it, in YAML or JSON.
type Config struct {
	// Endpoint is the socket of the runtime. Default
	// unix:///run/containerd/containerd.sock.
	Endpoint string `json:"endpoint,omitempty"`
	// ImageEndpoint is that of the image service; by default the same.
	ImageEndpoint string `json:"imageEndpoint,omitempty"`
	// Relay has calls pass through a process that outlives this one if this one
	// is killed: see package relay, whose MaybeRelay was then called first of all
	// in main. containerd 1.6 needs it to survive such a kill in the middle of a call.
	// Default false.
	Relay bool `json:"relay,omitempty"`
	// CgroupDriver is how the runtime makes control groups, "cgroupfs" or "systemd",
	// for runtimes that do not say so themselves, as containerd before 2.0. Default
	// cgroupfs. What a runtime says itself counts more.
	CgroupDriver CgroupDriver `json:"cgroupDriver,omitempty"`

	machine.Config      `json:",inline"`
	machine.ImageConfig `json:",inline"`
}

// ParseConfig reads a configuration. It is strict: the error, of class InvalidInput, names
// all unknown fields and invalid values. Empty data is an empty configuration.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if err := config.Decode(data, &cfg, cfg.validate); err != nil {
		return Config{}, errdefs.InvalidInputf("cri config: %w", err)
	}
	return cfg, nil
}

// validate returns all that is wrong with values.
func (cfg *Config) validate() error {
	problems := []error{cfg.Config.Validate(), cfg.ImageConfig.Validate()}
	if cfg.CgroupDriver != "" {
		problems = append(problems, cfg.CgroupDriver.Validate())
	}
	if cfg.CgroupParent != "" {
		problems = append(problems, podcgroup.ValidRoot(cfg.CgroupParent))
	}
	return errors.Join(problems...)
}

// complete fills in defaults.
func (cfg *Config) complete(nodeName string) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = "unix:///run/containerd/containerd.sock"
	}
	if cfg.ImageEndpoint == "" {
		cfg.ImageEndpoint = cfg.Endpoint
	}
	if cfg.CgroupDriver == "" {
		cfg.CgroupDriver = Cgroupfs
	}
	if cfg.CgroupParent == "" {
		cfg.CgroupParent = defaultCgroupParent
	}
	if cfg.LogRoot == "" {
		cfg.LogRoot = defaultLogRoot
		if cfg.LogLinks == "" {
			cfg.LogLinks = defaultLogLinks
		}
	}
	cfg.Complete(nodeName)
}
