package interlink

import (
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// fields are what plugins are trusted with, though not each does all of it:
// Config.PodFields changes the list.
var fields = []string{
	"restartPolicy", "initContainers", "hostNetwork", "hostname", "containers.ports.hostPort",
	"volumes.configMap", "volumes.secret", "volumes.projected", "-volumes.projected.sources.clusterTrustBundle", "-volumes.projected.sources.podCertificate",
	"volumes.downwardAPI", "volumes.emptyDir", "volumes.hostPath",
	"containers.livenessProbe", "containers.readinessProbe", "containers.startupProbe",
	"securityContext", "-securityContext.sysctls", "-securityContext.windowsOptions",
	"containers.securityContext", "-containers.securityContext.privileged", "-containers.securityContext.capabilities.add",
	"-containers.securityContext.procMount", "-containers.securityContext.windowsOptions",
}

// Sample returns a provider for nodeutil.Capabilities, and for nothing else.
func Sample() nodeutil.Provider { return podgroup.Sample(&backend{}) }

// New makes the provider of a node, whose labels, taints, spec and status it sets. It makes
// no request. What it returns is an io.Closer. An error is of class InvalidInput.
func New(init nodeutil.ProviderConfig, c Config) (nodeutil.Provider, node.NodeProvider, error) {
	return newProvider(init, c, nil)
}

func newProvider(init nodeutil.ProviderConfig, c Config, transport http.RoundTripper) (nodeutil.Provider, node.NodeProvider, error) {
	b, o, err := newBackend(c, transport)
	if err != nil {
		return nil, nil, err
	}
	b.cluster = init.Client
	b.config.configureNode(init.Node)
	return podgroup.New(init, b, o)
}

func newBackend(c Config, transport http.RoundTripper) (*backend, podgroup.Options, error) {
	if err := c.Complete(); err != nil {
		return nil, podgroup.Options{}, errdefs.InvalidInputf("interlink config: %w", err)
	}
	client, err := newClient(&c, transport)
	if err != nil {
		return nil, podgroup.Options{}, errdefs.InvalidInputf("interlink config: %w", err)
	}
	b := &backend{
		Client: client, config: &c, process: rand.Text(), started: time.Now().Truncate(time.Second),
		unclear: recent{max: time.Hour}, deleted: recent{max: time.Hour}, refused: recent{max: time.Hour}, unstarted: recent{max: time.Hour},
		unanswered: recent{max: time.Hour}, // another process' creation is waited for once, however late it is looked for again
	}
	return b, podgroup.Options{
		Service: "InterLink", Scheme: "interlink",
		Features: podgroup.Features{Fields: slices.Concat(fields, c.PodFields), Check: check, TokenLifetime: c.TokenLifetime.Duration},
		Capacity: c.capacity(),
		CacheFor: 5 * time.Second,
		// Create looks for the pod first, and annotates it.
		CreateTimeout: lookUpTimeout + recordTimeout + headerTimeout,
	}, nil
}
