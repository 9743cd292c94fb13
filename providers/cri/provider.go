package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"

	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
)

// callTimeout is how long the runtime may take to answer a call.
const callTimeout = 2 * time.Minute

// Provider runs pods with a container runtime. Make one with New.
type Provider struct {
	*podengine.Engine
	runtime internalapi.RuntimeService
	images  internalapi.ImageManagerService
}

// New connects to the runtime, goes on with the pods that an earlier process
// left there, and says in n.Node what the machine has.
func New(ctx context.Context, n machine.Node, cfg Config) (*Provider, error) {
	cfg.complete(n.Name)
	p := &Provider{}
	var err error
	if p.runtime, err = criclient.NewRemoteRuntimeService(ctx, cfg.Endpoint, callTimeout, nil, false); err != nil {
		return nil, fmt.Errorf("cannot connect to the container runtime at %s (set \"endpoint\" in the provider's configuration): %w", cfg.Endpoint, err)
	}
	if p.images, err = criclient.NewRemoteImageService(ctx, cfg.ImageEndpoint, callTimeout, nil, false); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot connect to the image service at %s: %w", cfg.ImageEndpoint, err), p.runtime.Close(ctx))
	}
	if p.Engine, err = machine.NewEngine(ctx, n, cfg.Config, cfg.ImageConfig, p.runtime, p.images); err != nil {
		return nil, errors.Join(err, p.disconnect(ctx))
	}
	return p, nil
}

// Close ends the provider. Containers run on.
func (p *Provider) Close() error {
	return errors.Join(p.Engine.Close(), p.disconnect(context.Background()))
}

func (p *Provider) disconnect(ctx context.Context) error {
	return errors.Join(p.runtime.Close(ctx), p.images.Close(ctx))
}

// NotifyNodeStatus does nothing: what a machine has does not change.
func (p *Provider) NotifyNodeStatus(context.Context, func(*corev1.Node)) {}
