package cri

import (
	"bytes"
	"errors"
	"net/netip"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/json"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Config is the provider's configuration, as its file has it: one JSON object.
type Config struct {
	// Endpoint is the socket of the runtime. Default
	// unix:///run/containerd/containerd.sock.
	Endpoint string `json:"endpoint,omitempty"`
	// ImageEndpoint is that of the image service; by default the same.
	ImageEndpoint string `json:"imageEndpoint,omitempty"`
	// Root is the directory of the provider's state and of volumes. Default
	// /var/lib/virtual-kubelet/NODE.
	Root string `json:"root,omitempty"`
	// LogRoot is where logs of containers are. Default ROOT/logs.
	LogRoot string `json:"logRoot,omitempty"`
	// ClusterDNS are the addresses of the cluster's DNS service. Without them
	// pods resolve names as the host does.
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// HostPaths are the directories of the host of which pods may have what is
	// in them, by hostPath volumes. Default none; "/" allows all.
	HostPaths []string `json:"hostPaths,omitempty"`
	// CgroupParent is the parent of the cgroups of all pods. Default that of
	// the runtime.
	CgroupParent string `json:"cgroupParent,omitempty"`
	// CPU, Memory and Pods are what the node has for pods. Default what the
	// machine has, and 110 pods.
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	Pods   *resource.Quantity `json:"pods,omitempty"`
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
	for _, server := range cfg.ClusterDNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return Config{}, errdefs.InvalidInputf("cri config: clusterDNS: %q is no IP address", server)
		}
	}
	for _, path := range append([]string{cfg.Root, cfg.LogRoot}, cfg.HostPaths...) {
		if path != "" && !filepath.IsAbs(path) {
			return Config{}, errdefs.InvalidInputf("cri config: %q is no absolute path", path)
		}
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
	if cfg.Root == "" {
		cfg.Root = filepath.Join("/var/lib/virtual-kubelet", nodeName)
	}
	if cfg.LogRoot == "" {
		cfg.LogRoot = filepath.Join(cfg.Root, "logs")
	}
	if cfg.Pods == nil {
		pods := resource.MustParse("110")
		cfg.Pods = &pods
	}
}
