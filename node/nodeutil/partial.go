package nodeutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	dto "github.com/prometheus/client_model/go"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// AsProvider makes a Provider of one that has the six methods of a
// node.PodLifecycleHandler, and any of the other methods of Provider. What it
// lacks is answered with 501 (Not Implemented) by the routes of
// AttachProviderRoutes, and fails with errors.ErrUnsupported otherwise. It also
// keeps what else the handler can do, such as node.PodNotifier, or
// GetContainerLogStream (api.ContainerLogStreamHandlerFunc), which Provider lacks.
// A method Unwrap of what it returns, unless that is the handler itself, returns
// the handler; node.NewPodController and package vkubelet find it by themselves.
func AsProvider(handler node.PodLifecycleHandler) Provider {
	if whole, ok := handler.(Provider); ok {
		return whole
	}
	return &partialProvider{handler}
}

type partialProvider struct {
	node.PodLifecycleHandler
}

// Unwrap returns what AsProvider was given, for callers that look for what it can do
// beside being a Provider, such as io.Closer.
func (p *partialProvider) Unwrap() node.PodLifecycleHandler { return p.PodLifecycleHandler }

// Completes has packages node and vkubelet use what AsProvider was given. Unwrap is not
// enough for that: a wrapper with this name, of others, may do more than to add methods.
func (p *partialProvider) Completes() node.PodLifecycleHandler { return p.PodLifecycleHandler }

// The optional methods of a provider.
type (
	logsProvider interface {
		GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error)
	}
	execProvider interface {
		RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error
	}
	attachProvider interface {
		AttachToContainer(ctx context.Context, namespace, podName, containerName string, attach api.AttachIO) error
	}
	portForwardProvider interface {
		PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error
	}
	statsProvider interface {
		GetStatsSummary(context.Context) (*statsv1alpha1.Summary, error)
	}
	logStreamProvider interface {
		GetContainerLogStream(ctx context.Context, namespace, podName, containerName, stream string, opts api.ContainerLogOpts) (io.ReadCloser, error)
	}
	metricsProvider interface {
		GetMetricsResource(context.Context) ([]*dto.MetricFamily, error)
	}
)

// Limited is a provider with methods for what it cannot do, such as one that wraps a
// backend of which it is not known before what that can do.
type Limited interface {
	// Lacks reports whether the provider cannot do what a name of Capabilities, or
	// "log-streams" (GetContainerLogStream), stands for, although it has the methods. The
	// answer is always the same.
	Lacks(capability string) bool
}

// Capabilities names what a provider can do beside running pods: notify,
// pods-by-uid, node-status, logs, exec, attach, port-forward, stats, metrics.
// It goes by the methods that the provider has, also those of a nil pointer, less
// what a Limited provider lacks.
func Capabilities(provider any) []string {
	if partial, ok := provider.(*partialProvider); ok {
		provider = partial.PodLifecycleHandler
	}
	var found []string
	for _, c := range []struct {
		name string
		has  func(any) bool
	}{
		{"notify", has[node.PodNotifier]},
		{"pods-by-uid", has[node.PodUIDLifecycleHandler]},
		{"node-status", has[node.NodeProvider]},
		{"logs", has[logsProvider]},
		{"exec", has[execProvider]},
		{"attach", has[attachProvider]},
		{"port-forward", has[portForwardProvider]},
		{"stats", has[statsProvider]},
		{"metrics", has[metricsProvider]},
	} {
		if c.has(provider) && !isWithout(provider, c.name) {
			found = append(found, c.name)
		}
	}
	return found
}

func has[T any](provider any) bool {
	_, ok := provider.(T)
	return ok
}

func isWithout(provider any, capability string) bool {
	limited, ok := provider.(Limited)
	return ok && limited.Lacks(capability)
}

// providerRoutes are the functions for package api, nil where the provider
// lacks them.
func providerRoutes(p Provider) api.PodHandlerConfig {
	var provider any = p
	if partial, ok := p.(*partialProvider); ok {
		provider = partial.PodLifecycleHandler
	}
	able := Capabilities(provider)
	can := func(capability string) bool { return slices.Contains(able, capability) }
	config := api.PodHandlerConfig{GetPods: p.GetPods}
	if can("exec") {
		config.RunInContainer = p.RunInContainer
	}
	if can("attach") {
		config.AttachToContainer = p.AttachToContainer
	}
	if can("port-forward") {
		config.PortForward = p.PortForward
	}
	if can("logs") {
		config.GetContainerLogs = p.GetContainerLogs
	}
	if able, ok := provider.(logStreamProvider); ok && !isWithout(provider, "log-streams") {
		config.GetContainerLogStream = able.GetContainerLogStream
	}
	if can("stats") {
		config.GetStatsSummary = p.GetStatsSummary
	}
	if can("metrics") {
		config.GetMetricsResource = p.GetMetricsResource
	}
	return config
}

func lacks(method string) error {
	return fmt.Errorf("the provider has no method %s: %w", method, errors.ErrUnsupported)
}

func (p *partialProvider) GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	if able, ok := p.PodLifecycleHandler.(logsProvider); ok {
		return able.GetContainerLogs(ctx, namespace, podName, containerName, opts)
	}
	return nil, lacks("GetContainerLogs")
}

func (p *partialProvider) RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error {
	if able, ok := p.PodLifecycleHandler.(execProvider); ok {
		return able.RunInContainer(ctx, namespace, podName, containerName, cmd, attach)
	}
	return lacks("RunInContainer")
}

func (p *partialProvider) AttachToContainer(ctx context.Context, namespace, podName, containerName string, attach api.AttachIO) error {
	if able, ok := p.PodLifecycleHandler.(attachProvider); ok {
		return able.AttachToContainer(ctx, namespace, podName, containerName, attach)
	}
	return lacks("AttachToContainer")
}

func (p *partialProvider) PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
	if able, ok := p.PodLifecycleHandler.(portForwardProvider); ok {
		return able.PortForward(ctx, namespace, pod, port, stream)
	}
	return lacks("PortForward")
}

func (p *partialProvider) GetStatsSummary(ctx context.Context) (*statsv1alpha1.Summary, error) {
	if able, ok := p.PodLifecycleHandler.(statsProvider); ok {
		return able.GetStatsSummary(ctx)
	}
	return nil, lacks("GetStatsSummary")
}

func (p *partialProvider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	if able, ok := p.PodLifecycleHandler.(metricsProvider); ok {
		return able.GetMetricsResource(ctx)
	}
	return nil, lacks("GetMetricsResource")
}

var _ Provider = (*partialProvider)(nil)
