package vkubelet

import (
	"context"
	"io"

	dto "github.com/prometheus/client_model/go"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// PodLogsProvider is implemented by a Provider that has the logs of containers
// (kubectl logs).
type PodLogsProvider interface {
	// GetContainerLogs is an api.ContainerLogsHandlerFunc.
	GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error)
}

// PodExecProvider is implemented by a Provider that can run commands in
// containers (kubectl exec, cp).
type PodExecProvider interface {
	// RunInContainer is an api.ContainerExecHandlerFunc.
	RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error
}

// PodAttachProvider is implemented by a Provider that can attach to the main
// process of containers (kubectl attach).
type PodAttachProvider interface {
	// AttachToContainer is an api.ContainerAttachHandlerFunc.
	AttachToContainer(ctx context.Context, namespace, podName, containerName string, attach api.AttachIO) error
}

// PodPortForwardProvider is implemented by a Provider that can connect to ports
// of pods (kubectl port-forward).
type PodPortForwardProvider interface {
	// PortForward is an api.PortForwardHandlerFunc.
	PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error
}

// PodMetricsProvider is implemented by a Provider that knows what its node and
// pods use.
type PodMetricsProvider interface {
	// GetStatsSummary is an api.PodStatsSummaryHandlerFunc.
	GetStatsSummary(context.Context) (*stats.Summary, error)
}

// PodResourceMetricsProvider is implemented by a Provider that has the metrics
// that metrics-server reads (kubectl top); api.ResourceMetricsFromSummary makes
// them from a Summary.
type PodResourceMetricsProvider interface {
	// GetMetricsResource is an api.PodMetricsResourceHandlerFunc.
	GetMetricsResource(context.Context) ([]*dto.MetricFamily, error)
}

// handlerConfig has what p can do; what it cannot stays nil, which answers 501.
func handlerConfig(p Provider) api.PodHandlerConfig {
	p = providercalls.Whole(p)
	metrics := metricsConfig(p)
	cfg := api.PodHandlerConfig{
		GetStatsSummary:    metrics.GetStatsSummary,
		GetMetricsResource: metrics.GetMetricsResource,
	}
	if p != nil {
		cfg.GetPods = p.GetPods
	}
	if p, ok := p.(PodLogsProvider); ok {
		cfg.GetContainerLogs = p.GetContainerLogs
	}
	if p, ok := p.(PodExecProvider); ok {
		cfg.RunInContainer = p.RunInContainer
	}
	if p, ok := p.(PodAttachProvider); ok {
		cfg.AttachToContainer = p.AttachToContainer
	}
	if p, ok := p.(PodPortForwardProvider); ok {
		cfg.PortForward = p.PortForward
	}
	return cfg
}

func metricsConfig(p Provider) (cfg api.PodMetricsConfig) {
	p = providercalls.Whole(p)
	if p, ok := p.(PodMetricsProvider); ok {
		cfg.GetStatsSummary = p.GetStatsSummary
	}
	if p, ok := p.(PodResourceMetricsProvider); ok {
		cfg.GetMetricsResource = p.GetMetricsResource
	}
	return cfg
}
