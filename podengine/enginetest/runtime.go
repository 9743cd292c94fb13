// Package enginetest has a container runtime in memory, for tests of programs that run pods
// with package podengine: what they configure, and what they add to it. What a runtime itself
// has to do is for its own tests to say, and for providertest.
package enginetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/podengine"
)

// Runtime is podengine.Config's Runtime and Images in one, with the methods that an engine
// needs. Its containers do nothing: they run until they are stopped, or Exit ends them. It
// has every image. The zero value is a runtime without pods.
type Runtime struct {
	podengine.Unimplemented

	// Before, if set, is called before each call with the name of the method; its error is
	// the call's. It is set before the runtime is used.
	Before func(method string) error

	mu         sync.Mutex
	made       int // sandboxes and containers, ever
	sandboxes  map[string]*runtimeapi.PodSandbox
	containers map[string]*container
}

type container struct {
	*runtimeapi.ContainerStatus
	sandbox string
}

var (
	_ internalapi.RuntimeService      = (*Runtime)(nil)
	_ internalapi.ImageManagerService = (*Runtime)(nil)
)

// Exit ends a container that runs, and reports whether there is one.
func (r *Runtime) Exit(namespace, pod, name string, code int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		labels := c.Labels
		if kubelettypes.GetPodNamespace(labels) == namespace && kubelettypes.GetPodName(labels) == pod && kubelettypes.GetContainerName(labels) == name && c.exit(code) {
			return true
		}
	}
	return false
}

// Running is how many containers run.
func (r *Runtime) Running() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			n++
		}
	}
	return n
}

// exit reports whether the container ran.
func (c *container) exit(code int32) bool {
	if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return false
	}
	c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	return true
}

// begin begins a call, which is not made if it returns an error. Else it holds the lock.
func (r *Runtime) begin(ctx context.Context, method string) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if r.Before != nil {
		if err := r.Before(method); err != nil {
			return err
		}
	}
	r.mu.Lock()
	if r.sandboxes == nil {
		r.sandboxes, r.containers = map[string]*runtimeapi.PodSandbox{}, map[string]*container{}
	}
	return nil
}

// newID returns the ID of something that is made.
func (r *Runtime) newID() string {
	r.made++
	return fmt.Sprintf("fake-%d", r.made)
}

func notFound(id string) error { return status.Error(codes.NotFound, id+" does not exist") }

// Version implements internalapi.RuntimeService.
func (r *Runtime) Version(ctx context.Context, _ string) (*runtimeapi.VersionResponse, error) {
	if err := r.begin(ctx, "Version"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return &runtimeapi.VersionResponse{RuntimeName: "fake"}, nil
}

// Status implements internalapi.RuntimeService.
func (r *Runtime) Status(ctx context.Context, _ bool) (*runtimeapi.StatusResponse, error) {
	if err := r.begin(ctx, "Status"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return &runtimeapi.StatusResponse{}, nil
}

// RunPodSandbox implements internalapi.RuntimeService.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := r.begin(ctx, "RunPodSandbox"); err != nil {
		return "", err
	}
	defer r.mu.Unlock()
	id := r.newID()
	r.sandboxes[id] = &runtimeapi.PodSandbox{
		Id: id, Metadata: config.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
		Labels: config.Labels, Annotations: config.Annotations, RuntimeHandler: handler,
	}
	return id, nil
}

// StopPodSandbox implements internalapi.RuntimeService.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	if err := r.begin(ctx, "StopPodSandbox"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if box := r.sandboxes[id]; box != nil {
		box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, c := range r.containers {
		if c.sandbox == id {
			c.exit(137)
		}
	}
	return nil
}

// RemovePodSandbox implements internalapi.RuntimeService.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.begin(ctx, "RemovePodSandbox"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	delete(r.sandboxes, id)
	maps.DeleteFunc(r.containers, func(_ string, c *container) bool { return c.sandbox == id })
	return nil
}

// PodSandboxStatus implements internalapi.RuntimeService.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := r.begin(ctx, "PodSandboxStatus"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	box := r.sandboxes[id]
	if box == nil {
		return nil, notFound(id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: id, State: box.State, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "192.0.2.1"},
	}}, nil
}

// ListPodSandbox implements internalapi.RuntimeService.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) (found []*runtimeapi.PodSandbox, err error) {
	if err := r.begin(ctx, "ListPodSandbox"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	for _, box := range r.sandboxes {
		if selects(filter.GetLabelSelector(), box.Labels) {
			found = append(found, proto.CloneOf(box))
		}
	}
	return found, nil
}

// selects reports whether labels have all that a selector names.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// CreateContainer implements internalapi.RuntimeService.
func (r *Runtime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if err := r.begin(ctx, "CreateContainer"); err != nil {
		return "", err
	}
	defer r.mu.Unlock()
	if r.sandboxes[sandbox] == nil {
		return "", notFound(sandbox)
	}
	id := r.newID()
	r.containers[id] = &container{sandbox: sandbox, ContainerStatus: &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
		Image: config.Image, ImageRef: config.GetImage().GetImage(), Labels: config.Labels, Annotations: config.Annotations, Mounts: config.Mounts,
	}}
	return id, nil
}

// StartContainer implements internalapi.RuntimeService.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	if err := r.begin(ctx, "StartContainer"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound(id)
	}
	c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	return nil
}

// StopContainer implements internalapi.RuntimeService: a container ends at once, with 143.
func (r *Runtime) StopContainer(ctx context.Context, id string, _ int64) error {
	if err := r.begin(ctx, "StopContainer"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.exit(143)
	}
	return nil
}

// RemoveContainer implements internalapi.RuntimeService.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	if err := r.begin(ctx, "RemoveContainer"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	delete(r.containers, id)
	return nil
}

// ListContainers implements internalapi.RuntimeService.
func (r *Runtime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) (found []*runtimeapi.Container, err error) {
	if err := r.begin(ctx, "ListContainers"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if !selects(filter.GetLabelSelector(), c.Labels) || !slices.Contains([]string{"", c.sandbox}, filter.GetPodSandboxId()) ||
			filter.GetState() != nil && filter.State.State != c.State {
			continue
		}
		found = append(found, &runtimeapi.Container{
			Id: c.Id, PodSandboxId: c.sandbox, Metadata: c.Metadata, Image: c.Image, ImageRef: c.ImageRef, State: c.State,
			CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations,
		})
	}
	return found, nil
}

// ContainerStatus implements internalapi.RuntimeService.
func (r *Runtime) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if err := r.begin(ctx, "ContainerStatus"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound(id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(c.ContainerStatus)}, nil
}

// ImageStatus implements internalapi.ImageManagerService.
func (r *Runtime) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if err := r.begin(ctx, "ImageStatus"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: image.GetImage()}}, nil
}

// PullImage implements internalapi.ImageManagerService.
func (r *Runtime) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if err := r.begin(ctx, "PullImage"); err != nil {
		return "", err
	}
	defer r.mu.Unlock()
	return image.GetImage(), nil
}
