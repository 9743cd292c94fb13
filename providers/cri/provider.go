package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"

	"github.com/virtual-kubelet/virtual-kubelet/internal/dirlock"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/cri/relay"
)

// callTimeout is how long the runtime may take to answer a call.
const callTimeout = 2 * time.Minute

// Provider runs pods with a container runtime. Make one with New.
type Provider struct {
	*machine.Engine
	runtime internalapi.RuntimeService
	images  internalapi.ImageManagerService
	relay   *relay.Relay // nil if there is none
	lock    *os.File     // of the root; nil before it was taken
}

// New goes on with the pods that an earlier process left in the runtime, and says in
// n.Node what the machine has. The runtime need not be up: pods wait for it, and the
// node is not ready until it is.
func New(ctx context.Context, n machine.Node, cfg Config) (*Provider, error) {
	cfg.complete(n.Name)
	p := &Provider{}
	var err error
	if p.lock, err = lockRoot(cfg.Root); err != nil {
		return nil, err
	}
	p.connect(ctx, cfg)
	if p.Engine, err = machine.NewEngine(ctx, n, cfg.Config, cfg.ImageConfig, p.runtime, p.images, p.adjust(cfg)); err != nil {
		return nil, errors.Join(err, p.disconnect(ctx))
	}
	return p, nil
}

// lockRoot keeps other processes of the machine from running the same pods. The lease of the
// node does not: a fleet makes its providers before it waits for the leases of its nodes.
func lockRoot(root string) (*os.File, error) {
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the provider's state: %w", err)
	}
	return dirlock.Take(root)
}

// connect makes clients of the runtime, which connect when they are used.
func (p *Provider) connect(ctx context.Context, cfg Config) {
	endpoint, imageEndpoint := p.relayed(ctx, cfg)
	p.runtime = &lazyRuntime{lazy[internalapi.RuntimeService]{connect: func(ctx context.Context) (internalapi.RuntimeService, error) {
		service, err := criclient.NewRemoteRuntimeService(ctx, endpoint, callTimeout, nil, false)
		if err != nil {
			return nil, explained("container runtime", cfg.Endpoint, err)
		}
		return service, nil
	}}}
	p.images = &lazyImages{lazy[internalapi.ImageManagerService]{connect: func(ctx context.Context) (internalapi.ImageManagerService, error) {
		service, err := criclient.NewRemoteImageService(ctx, imageEndpoint, callTimeout, nil, false)
		if err != nil {
			return nil, explained("image service", cfg.ImageEndpoint, err)
		}
		return service, nil
	}}}
}

// Close ends the provider. Containers run on.
func (p *Provider) Close() error {
	return errors.Join(p.Engine.Close(), p.disconnect(context.Background()))
}

// relayed starts a relay, if there is to be one, and returns where to call the
// runtime. Without it, all is well until this process is killed.
func (p *Provider) relayed(ctx context.Context, cfg Config) (endpoint, imageEndpoint string) {
	if !cfg.Relay {
		return cfg.Endpoint, cfg.ImageEndpoint
	}
	var err error
	if p.relay, err = relay.Start(ctx, cfg.Root, cfg.Endpoint); err != nil {
		log.G(ctx).WithError(err).Warn("Calling the container runtime without a relay: calls are broken off if this process is killed")
		return cfg.Endpoint, cfg.ImageEndpoint
	}
	if cfg.ImageEndpoint == cfg.Endpoint {
		return p.relay.Endpoint(), p.relay.Endpoint()
	}
	return p.relay.Endpoint(), cfg.ImageEndpoint
}

func (p *Provider) disconnect(ctx context.Context) error {
	var errs []error
	if p.runtime != nil {
		errs = append(errs, p.runtime.Close(ctx))
	}
	if p.images != nil {
		errs = append(errs, p.images.Close(ctx))
	}
	if p.relay != nil {
		errs = append(errs, p.relay.Close())
	}
	if p.lock != nil {
		errs = append(errs, p.lock.Close())
	}
	return errors.Join(errs...)
}
