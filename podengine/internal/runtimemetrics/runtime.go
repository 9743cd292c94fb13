package runtimemetrics

import (
	"context"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// measuredRuntime is a runtime whose calls are counted.
type measuredRuntime struct {
	internalapi.RuntimeService
	*operations
}

var _ internalapi.RuntimeService = (*measuredRuntime)(nil)

// GetContainerEvents goes on for as long as the runtime runs: its duration shows
// nothing.
func (r *measuredRuntime) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked("get_container_events", v)
		}
		r.counted("get_container_events", err)
	}()
	return r.RuntimeService.GetContainerEvents(ctx, events, connected)
}

func (r *measuredRuntime) Version(ctx context.Context, apiVersion string) (answer *runtimeapi.VersionResponse, err error) {
	defer r.ended("version", time.Now(), &err)
	answer, err = r.RuntimeService.Version(ctx, apiVersion)
	return answer, answered("version", answer != nil, err)
}

func (r *measuredRuntime) Status(ctx context.Context, verbose bool) (answer *runtimeapi.StatusResponse, err error) {
	defer r.ended("status", time.Now(), &err)
	answer, err = r.RuntimeService.Status(ctx, verbose)
	return answer, answered("status", answer != nil, err)
}

func (r *measuredRuntime) RuntimeConfig(ctx context.Context) (_ *runtimeapi.RuntimeConfigResponse, err error) {
	defer r.ended("runtime_config", time.Now(), &err)
	return r.RuntimeService.RuntimeConfig(ctx)
}

func (r *measuredRuntime) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) (err error) {
	defer r.ended("update_runtime_config", time.Now(), &err)
	return r.RuntimeService.UpdateRuntimeConfig(ctx, config)
}

func (r *measuredRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (_ string, err error) {
	defer r.ended("create_container", time.Now(), &err)
	return r.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
}

func (r *measuredRuntime) StartContainer(ctx context.Context, id string) (err error) {
	defer r.ended("start_container", time.Now(), &err)
	return r.RuntimeService.StartContainer(ctx, id)
}

func (r *measuredRuntime) StopContainer(ctx context.Context, id string, timeout int64) (err error) {
	defer r.ended("stop_container", time.Now(), &err)
	return r.RuntimeService.StopContainer(ctx, id, timeout)
}

func (r *measuredRuntime) RemoveContainer(ctx context.Context, id string) (err error) {
	defer r.ended("remove_container", time.Now(), &err)
	return r.RuntimeService.RemoveContainer(ctx, id)
}

func (r *measuredRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) (_ []*runtimeapi.Container, err error) {
	defer r.ended("list_containers", time.Now(), &err)
	return r.RuntimeService.ListContainers(ctx, filter)
}

func (r *measuredRuntime) ContainerStatus(ctx context.Context, id string, verbose bool) (answer *runtimeapi.ContainerStatusResponse, err error) {
	defer r.ended("container_status", time.Now(), &err)
	answer, err = r.RuntimeService.ContainerStatus(ctx, id, verbose)
	return answer, answered("container_status", answer.GetStatus() != nil, err)
}

func (r *measuredRuntime) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) (err error) {
	defer r.ended("update_container", time.Now(), &err)
	return r.RuntimeService.UpdateContainerResources(ctx, id, resources)
}

func (r *measuredRuntime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	defer r.ended("exec_sync", time.Now(), &err)
	return r.RuntimeService.ExecSync(ctx, id, command, timeout)
}

func (r *measuredRuntime) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (answer *runtimeapi.ExecResponse, err error) {
	defer r.ended("exec", time.Now(), &err)
	answer, err = r.RuntimeService.Exec(ctx, request)
	return answer, answered("exec", answer != nil, err)
}

func (r *measuredRuntime) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (answer *runtimeapi.AttachResponse, err error) {
	defer r.ended("attach", time.Now(), &err)
	answer, err = r.RuntimeService.Attach(ctx, request)
	return answer, answered("attach", answer != nil, err)
}

func (r *measuredRuntime) ReopenContainerLog(ctx context.Context, id string) (err error) {
	defer r.ended("reopen_container_log", time.Now(), &err)
	return r.RuntimeService.ReopenContainerLog(ctx, id)
}

func (r *measuredRuntime) CheckpointContainer(ctx context.Context, request *runtimeapi.CheckpointContainerRequest) (err error) {
	defer r.ended("checkpoint_container", time.Now(), &err)
	return r.RuntimeService.CheckpointContainer(ctx, request)
}

func (r *measuredRuntime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (_ string, err error) {
	defer r.ended("run_podsandbox", time.Now(), &err)
	return r.RuntimeService.RunPodSandbox(ctx, config, handler)
}

func (r *measuredRuntime) StopPodSandbox(ctx context.Context, id string) (err error) {
	defer r.ended("stop_podsandbox", time.Now(), &err)
	return r.RuntimeService.StopPodSandbox(ctx, id)
}

func (r *measuredRuntime) RemovePodSandbox(ctx context.Context, id string) (err error) {
	defer r.ended("remove_podsandbox", time.Now(), &err)
	return r.RuntimeService.RemovePodSandbox(ctx, id)
}

func (r *measuredRuntime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (answer *runtimeapi.PodSandboxStatusResponse, err error) {
	defer r.ended("podsandbox_status", time.Now(), &err)
	answer, err = r.RuntimeService.PodSandboxStatus(ctx, id, verbose)
	return answer, answered("podsandbox_status", answer.GetStatus() != nil, err)
}

func (r *measuredRuntime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) (_ []*runtimeapi.PodSandbox, err error) {
	defer r.ended("list_podsandbox", time.Now(), &err)
	return r.RuntimeService.ListPodSandbox(ctx, filter)
}

func (r *measuredRuntime) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (answer *runtimeapi.PortForwardResponse, err error) {
	defer r.ended("port_forward", time.Now(), &err)
	answer, err = r.RuntimeService.PortForward(ctx, request)
	return answer, answered("port_forward", answer != nil, err)
}

func (r *measuredRuntime) UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (_ *runtimeapi.UpdatePodSandboxResourcesResponse, err error) {
	defer r.ended("update_podsandbox_resources", time.Now(), &err)
	return r.RuntimeService.UpdatePodSandboxResources(ctx, request)
}

func (r *measuredRuntime) ContainerStats(ctx context.Context, id string) (_ *runtimeapi.ContainerStats, err error) {
	defer r.ended("container_stats", time.Now(), &err)
	return r.RuntimeService.ContainerStats(ctx, id)
}

func (r *measuredRuntime) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) (_ []*runtimeapi.ContainerStats, err error) {
	defer r.ended("list_container_stats", time.Now(), &err)
	return r.RuntimeService.ListContainerStats(ctx, filter)
}

func (r *measuredRuntime) PodSandboxStats(ctx context.Context, id string) (_ *runtimeapi.PodSandboxStats, err error) {
	defer r.ended("podsandbox_stats", time.Now(), &err)
	return r.RuntimeService.PodSandboxStats(ctx, id)
}

func (r *measuredRuntime) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) (_ []*runtimeapi.PodSandboxStats, err error) {
	defer r.ended("list_podsandbox_stats", time.Now(), &err)
	return r.RuntimeService.ListPodSandboxStats(ctx, filter)
}

func (r *measuredRuntime) ListMetricDescriptors(ctx context.Context) (_ []*runtimeapi.MetricDescriptor, err error) {
	defer r.ended("list_metric_descriptors", time.Now(), &err)
	return r.RuntimeService.ListMetricDescriptors(ctx)
}

func (r *measuredRuntime) ListPodSandboxMetrics(ctx context.Context) (_ []*runtimeapi.PodSandboxMetrics, err error) {
	defer r.ended("list_podsandbox_metrics", time.Now(), &err)
	return r.RuntimeService.ListPodSandboxMetrics(ctx)
}
