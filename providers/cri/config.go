package cri

import (
	"bytes"
	"errors"

	"sigs.k8s.io/json"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
)

// Config is the provider's configuration, as its file has it: one JSON object.
type Config struct {
	// Endpoint is the socket of the runtime. Default
	// unix:///run/containerd/containerd.sock.
	Endpoint string `json:"endpoint,omitempty"`
	// ImageEndpoint is that of the image service; by default the same.
	ImageEndpoint string `json:"imageEndpoint,omitempty"`
	// Relay has calls pass through a process that outlives this one if this one
	// is killed: see package relay, whose MaybeRelay was then called first of all
	// in main. It is not for the operator: the program sets it.
	Relay bool `json:"-"`

	machine.Config      `json:",inline"`
	machine.ImageConfig `json:",inline"`
}

// ParseConfig reads a configuration. It is strict: a field that there is not, or
// a value that is none, is an error of class InvalidInput. Empty data is an
// empty configuration.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if len(bytes.TrimSpace(data)) > 0 {
		strict, err := json.UnmarshalStrict(data, &cfg)
		if err = errors.Join(append(strict, err)...); err != nil {
			return Config{}, errdefs.InvalidInputf("cri config: %w", err)
		}
	}
	if err := errors.Join(cfg.Config.Validate(), cfg.ImageConfig.Validate()); err != nil {
		return Config{}, errdefs.InvalidInputf("cri config: %w", err)
	}
	return cfg, nil
}

// complete fills in defaults.
func (cfg *Config) complete(nodeName string) {
	if cfg.Endpoint == "" {
		cfg.Endpoint = "unix:///run/containerd/containerd.sock"
	}
	if cfg.ImageEndpoint == "" {
		cfg.ImageEndpoint = cfg.Endpoint
	}
	cfg.Complete(nodeName)
}
