package cri

import (
	"context"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// lazyRuntime is a container runtime that is connected to by the first call that it answers.
type lazyRuntime struct {
	lazy[internalapi.RuntimeService]
}

var _ internalapi.RuntimeService = (*lazyRuntime)(nil)

func (l *lazyRuntime) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.GetContainerEvents(ctx, events, connected)
}

func (l *lazyRuntime) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.Version(ctx, apiVersion)
}

func (l *lazyRuntime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.Status(ctx, verbose)
}

func (l *lazyRuntime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.RuntimeConfig(ctx)
}

func (l *lazyRuntime) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.UpdateRuntimeConfig(ctx, config)
}

func (l *lazyRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	service, err := l.get(ctx)
	if err != nil {
		return "", err
	}
	return service.CreateContainer(ctx, sandbox, config, sandboxConfig)
}

func (l *lazyRuntime) StartContainer(ctx context.Context, id string) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.StartContainer(ctx, id)
}

func (l *lazyRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.StopContainer(ctx, id, timeout)
}

func (l *lazyRuntime) RemoveContainer(ctx context.Context, id string) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.RemoveContainer(ctx, id)
}

func (l *lazyRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ListContainers(ctx, filter)
}

func (l *lazyRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ContainerStatus(ctx, id, verbose)
}

func (l *lazyRuntime) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.UpdateContainerResources(ctx, id, resources)
}

func (l *lazyRuntime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	return service.ExecSync(ctx, id, command, timeout)
}

func (l *lazyRuntime) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.Exec(ctx, request)
}

func (l *lazyRuntime) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.Attach(ctx, request)
}

func (l *lazyRuntime) ReopenContainerLog(ctx context.Context, id string) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.ReopenContainerLog(ctx, id)
}

func (l *lazyRuntime) CheckpointContainer(ctx context.Context, request *runtimeapi.CheckpointContainerRequest) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.CheckpointContainer(ctx, request)
}

func (l *lazyRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	service, err := l.get(ctx)
	if err != nil {
		return "", err
	}
	return service.RunPodSandbox(ctx, config, handler)
}

func (l *lazyRuntime) StopPodSandbox(ctx context.Context, id string) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.StopPodSandbox(ctx, id)
}

func (l *lazyRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	service, err := l.get(ctx)
	if err != nil {
		return err
	}
	return service.RemovePodSandbox(ctx, id)
}

func (l *lazyRuntime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.PodSandboxStatus(ctx, id, verbose)
}

func (l *lazyRuntime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ListPodSandbox(ctx, filter)
}

func (l *lazyRuntime) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.PortForward(ctx, request)
}

func (l *lazyRuntime) UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.UpdatePodSandboxResources(ctx, request)
}

func (l *lazyRuntime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ContainerStats(ctx, id)
}

func (l *lazyRuntime) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ListContainerStats(ctx, filter)
}

func (l *lazyRuntime) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.PodSandboxStats(ctx, id)
}

func (l *lazyRuntime) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ListPodSandboxStats(ctx, filter)
}

func (l *lazyRuntime) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ListMetricDescriptors(ctx)
}

func (l *lazyRuntime) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	service, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return service.ListPodSandboxMetrics(ctx)
}
