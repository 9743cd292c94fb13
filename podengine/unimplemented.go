package podengine

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Unimplemented has those methods of Config.Runtime and Config.Images that an Engine can do
// without, for runtimes to embed. docs/podengine.md says what is lost without each. What it
// returns is an errors.ErrUnsupported, and of code Unimplemented to gRPC.
type Unimplemented struct{}

// unimplemented is the error of a method.
type unimplemented string

func (u unimplemented) Error() string { return "the container runtime has no " + string(u) }

// GRPCStatus has package status take it for an error of gRPC.
func (u unimplemented) GRPCStatus() *status.Status {
	return status.New(codes.Unimplemented, u.Error())
}

// Is has kubectl's requests answered with 501.
func (unimplemented) Is(target error) bool { return target == errors.ErrUnsupported }

// ExecSync runs commands of probes and hooks.
func (Unimplemented) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	return nil, nil, unimplemented("ExecSync")
}

// Exec prepares kubectl exec, where there is no Config.Streams.
func (Unimplemented) Exec(context.Context, *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return nil, unimplemented("Exec")
}

// Attach prepares kubectl attach, where there is no Config.Streams.
func (Unimplemented) Attach(context.Context, *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return nil, unimplemented("Attach")
}

// PortForward prepares kubectl port-forward, where there is no Config.Streams.
func (Unimplemented) PortForward(context.Context, *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return nil, unimplemented("PortForward")
}

// ReopenContainerLog begins a new log after a rotation.
func (Unimplemented) ReopenContainerLog(context.Context, string) error {
	return unimplemented("ReopenContainerLog")
}

// GetContainerEvents sends changes of containers.
func (Unimplemented) GetContainerEvents(context.Context, chan *runtimeapi.ContainerEventResponse, func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	return unimplemented("GetContainerEvents")
}

// UpdateContainerResources resizes a container that runs.
func (Unimplemented) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return unimplemented("UpdateContainerResources")
}

// UpdatePodSandboxResources is sent the sums of a pod that was resized.
func (Unimplemented) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return nil, unimplemented("UpdatePodSandboxResources")
}

// ListContainerStats returns what containers use.
func (Unimplemented) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return nil, unimplemented("ListContainerStats")
}

// ListImages returns the images, for the removal of unused ones.
func (Unimplemented) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return nil, unimplemented("ListImages")
}

// RemoveImage removes an image that is not used.
func (Unimplemented) RemoveImage(context.Context, *runtimeapi.ImageSpec) error {
	return unimplemented("RemoveImage")
}

// ImageFsInfo returns what images take of their file system.
func (Unimplemented) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return nil, unimplemented("ImageFsInfo")
}

// CheckpointContainer is not called.
func (Unimplemented) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return unimplemented("CheckpointContainer")
}

// ContainerStats is not called.
func (Unimplemented) ContainerStats(context.Context, string) (*runtimeapi.ContainerStats, error) {
	return nil, unimplemented("ContainerStats")
}

// PodSandboxStats is not called.
func (Unimplemented) PodSandboxStats(context.Context, string) (*runtimeapi.PodSandboxStats, error) {
	return nil, unimplemented("PodSandboxStats")
}

// ListPodSandboxStats says how many processes pods have.
func (Unimplemented) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, unimplemented("ListPodSandboxStats")
}

// ListMetricDescriptors is not called.
func (Unimplemented) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, unimplemented("ListMetricDescriptors")
}

// ListPodSandboxMetrics is not called.
func (Unimplemented) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, unimplemented("ListPodSandboxMetrics")
}

// UpdateRuntimeConfig is not called.
func (Unimplemented) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error {
	return unimplemented("UpdateRuntimeConfig")
}

// RuntimeConfig is not called.
func (Unimplemented) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return nil, unimplemented("RuntimeConfig")
}

// Close is not called.
func (Unimplemented) Close(context.Context) error { return nil }
