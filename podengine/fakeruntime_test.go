package podengine

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// fakeRuntime is a container runtime in memory. Containers run for ever and end
// at once when they are stopped, unless their plan says otherwise.
type fakeRuntime struct {
	internalapi.RuntimeService // what is not implemented panics

	mu         sync.Mutex
	boxes      map[string]*fakeBox
	containers map[string]*fakeContainer
	count      int
	calls      []string        // what has changed something, in order
	plans      map[string]plan // by container
	updated    []*runtimeapi.ContainerResources
	reopened   int
	listed     int

	// before is called before each call, without locks; its error is the call's.
	before func(ctx context.Context, call string) error
	// exec answers ExecSync.
	exec func(ctx context.Context, container string, command []string) error
	// events are sent by GetContainerEvents, which is unimplemented if they are nil.
	events chan *runtimeapi.ContainerEventResponse
	// streams prepares sessions.
	streams streaming.Server
	// stats are what ListContainerStats returns.
	stats []*runtimeapi.ContainerStats
	// processes are what ListPodSandboxStats returns, which else is unimplemented.
	processes map[types.UID]uint64
	// features are those of the default handler; nil if the runtime does not say.
	features *runtimeapi.RuntimeHandlerFeatures
	// strictGroups is whether it knows supplementalGroupsPolicy: Strict.
	strictGroups bool
	// moreIPs are the addresses of sandboxes after 10.0.0.1.
	moreIPs []string
	// image is that of sandboxes, in the runtime's configuration.
	image string
	// skew is how far the runtime's clock is ahead of the engine's.
	skew time.Duration
}

// plan is what a container does.
type plan struct {
	runs     time.Duration // until it ends by itself; zero is never
	code     int32         // of an end by itself
	lingers  time.Duration // after it is asked to stop
	dies     time.Duration // after it is killed
	stopCode int32         // of the end by which it answers
}

type fakeBox struct {
	*runtimeapi.PodSandbox
	config *runtimeapi.PodSandboxConfig
}

type fakeContainer struct {
	*runtimeapi.ContainerStatus
	config *runtimeapi.ContainerConfig
	box    string
	log    string
	ended  chan struct{}
	timer  *time.Timer
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{boxes: map[string]*fakeBox{}, containers: map[string]*fakeContainer{}, plans: map[string]plan{}}
}

func (f *fakeRuntime) call(ctx context.Context, format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	f.mu.Lock()
	before := f.before
	if call != "Version" && !strings.HasPrefix(call, "List") && !strings.HasSuffix(strings.Fields(call)[0], "Status") {
		f.calls = append(f.calls, call)
	}
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *fakeRuntime) now() int64 { return time.Now().Add(f.skew).UnixNano() }

func (f *fakeRuntime) id(kind, name string) string {
	f.count++
	return fmt.Sprintf("%s-%s-%d", kind, name, f.count)
}

func notFound(id string) error { return status.Error(codes.NotFound, "no such thing: "+id) }

func (f *fakeRuntime) Version(ctx context.Context, _ string) (*runtimeapi.VersionResponse, error) {
	if err := f.call(ctx, "Version"); err != nil {
		return nil, err
	}
	return &runtimeapi.VersionResponse{RuntimeName: "fake"}, nil
}

func (f *fakeRuntime) Status(ctx context.Context, _ bool) (*runtimeapi.StatusResponse, error) {
	if err := f.call(ctx, "Status"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &runtimeapi.StatusResponse{Info: map[string]string{"config": fmt.Sprintf(`{"sandboxImage":%q}`, f.image)}}
	if f.strictGroups {
		answer.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	}
	if f.features != nil {
		answer.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{Name: "other"}, {Features: f.features}}
	}
	return answer, nil
}

func (f *fakeRuntime) RunPodSandbox(ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := f.call(ctx, "RunPodSandbox %s", c.Metadata.Name); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.id("box", c.Metadata.Name)
	f.boxes[id] = &fakeBox{&runtimeapi.PodSandbox{
		Id: id, Metadata: c.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: f.now(),
		Labels: c.Labels, Annotations: c.Annotations, RuntimeHandler: handler,
	}, c}
	return id, nil
}

func (f *fakeRuntime) StopPodSandbox(ctx context.Context, id string) error {
	if err := f.call(ctx, "StopPodSandbox"); err != nil {
		return err
	}
	f.loseSandbox(id)
	return nil
}

// loseSandbox ends a sandbox with all that is in it.
func (f *fakeRuntime) loseSandbox(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if box := f.boxes[id]; box != nil {
		box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, c := range f.containers {
		if c.box == id {
			f.end(c, 137)
		}
	}
}

func (f *fakeRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := f.call(ctx, "RemovePodSandbox"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.boxes, id)
	maps.DeleteFunc(f.containers, func(_ string, c *fakeContainer) bool { return c.box == id })
	return nil
}

func (f *fakeRuntime) PodSandboxStatus(ctx context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := f.call(ctx, "PodSandboxStatus"); err != nil {
		return nil, err
	}
	network := &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"}
	for _, ip := range f.moreIPs {
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: id, Network: network}}, nil
}

func (f *fakeRuntime) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not here")
}

func selected(labels, by map[string]string) bool {
	for key, value := range by {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (f *fakeRuntime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if err := f.call(ctx, "ListPodSandbox"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if filter == nil {
		f.listed++
	}
	var list []*runtimeapi.PodSandbox
	for _, box := range f.boxes {
		if selected(box.Labels, filter.GetLabelSelector()) {
			list = append(list, proto.CloneOf(box.PodSandbox))
		}
	}
	return list, nil
}

func (f *fakeRuntime) CreateContainer(ctx context.Context, box string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if err := f.call(ctx, "CreateContainer %s", c.Metadata.Name); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.boxes[box] == nil {
		return "", notFound(box)
	}
	id := f.id("c", c.Metadata.Name)
	log := filepath.Join(f.boxes[box].config.LogDirectory, c.LogPath)
	if err := writeLog(log, 0); err != nil {
		return "", err
	}
	f.containers[id] = &fakeContainer{
		ContainerStatus: &runtimeapi.ContainerStatus{
			Id: id, Metadata: c.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: f.now(),
			Image: c.Image, ImageRef: "ref-" + c.Image.Image, Labels: c.Labels, Annotations: c.Annotations, Mounts: c.Mounts,
		},
		config: c, box: box, log: log, ended: make(chan struct{}),
	}
	return id, nil
}

func (f *fakeRuntime) StartContainer(ctx context.Context, id string) error {
	if err := f.call(ctx, "StartContainer %s", f.name(id)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, f.now()
	if p := f.plans[c.Metadata.Name]; p.runs > 0 {
		c.timer = time.AfterFunc(p.runs, func() { f.exit(id, p.code) })
	}
	return nil
}

func (f *fakeRuntime) name(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.containers[id].GetMetadata().GetName()
}

func (c *fakeContainer) GetMetadata() *runtimeapi.ContainerMetadata {
	if c == nil {
		return nil
	}
	return c.ContainerStatus.GetMetadata()
}

// exit ends a container.
func (f *fakeRuntime) exit(id string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[id]; c != nil {
		f.end(c, code)
	}
}

func (f *fakeRuntime) end(c *fakeContainer, code int32) {
	if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.State, c.FinishedAt, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, f.now(), code
	close(c.ended)
}

func (f *fakeRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	if err := f.call(ctx, "StopContainer %s %d", f.name(id), timeout); err != nil {
		return err
	}
	f.mu.Lock()
	c := f.containers[id]
	if c == nil {
		f.mu.Unlock()
		return notFound(id)
	}
	p := f.plans[c.Metadata.Name]
	f.mu.Unlock()
	wait, code := p.lingers, p.stopCode
	if limit := time.Duration(timeout) * time.Second; wait > limit {
		wait, code = limit+p.dies, 137
	}
	select {
	case <-time.After(wait):
	case <-c.ended:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	f.exit(id, code)
	return nil
}

func (f *fakeRuntime) RemoveContainer(ctx context.Context, id string) error {
	if err := f.call(ctx, "RemoveContainer %s", f.name(id)); err != nil {
		return err
	}
	f.exit(id, 137)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, id)
	return nil
}

func (f *fakeRuntime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if err := f.call(ctx, "ListContainers"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*runtimeapi.Container
	for id, c := range f.containers {
		if !selected(c.Labels, filter.GetLabelSelector()) ||
			filter.GetPodSandboxId() != "" && filter.PodSandboxId != c.box ||
			filter.GetState() != nil && filter.State.State != c.State {
			continue
		}
		list = append(list, &runtimeapi.Container{
			Id: id, PodSandboxId: c.box, Metadata: c.Metadata, Image: c.Image, ImageRef: c.ImageRef, State: c.State,
			CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations,
		})
	}
	return list, nil
}

func (f *fakeRuntime) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if err := f.call(ctx, "ContainerStatus"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c == nil {
		return nil, notFound(id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(c.ContainerStatus)}, nil
}

func (f *fakeRuntime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	f.mu.Lock()
	exec := f.exec
	f.mu.Unlock()
	return nil, nil, exec(ctx, f.name(id), command)
}

func (f *fakeRuntime) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	if err := f.call(ctx, "UpdateContainerResources %s", f.name(id)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updated = append(f.updated, r)
	return nil
}

// ReopenContainerLog makes a new log.
func (f *fakeRuntime) ReopenContainerLog(ctx context.Context, id string) error {
	if err := f.call(ctx, "ReopenContainerLog %s", f.name(id)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reopened++
	return writeLog(f.containers[id].log, 0)
}

func (f *fakeRuntime) GetContainerEvents(ctx context.Context, to chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	connected(nil)
	if f.events == nil {
		return status.Error(codes.Unimplemented, "no events")
	}
	for {
		select {
		case e, ok := <-f.events:
			if !ok {
				return status.Error(codes.Unavailable, "the connection is lost")
			}
			to <- e
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeRuntime) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if err := f.call(ctx, "Exec %s", f.name(r.ContainerId)); err != nil {
		return nil, err
	}
	return f.streams.GetExec(r)
}

func (f *fakeRuntime) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if err := f.call(ctx, "Attach %s", f.name(r.ContainerId)); err != nil {
		return nil, err
	}
	return f.streams.GetAttach(r)
}

func (f *fakeRuntime) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if err := f.call(ctx, "PortForward %d", r.Port); err != nil {
		return nil, err
	}
	return f.streams.GetPortForward(r)
}

func (f *fakeRuntime) ListContainerStats(ctx context.Context, _ *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	if err := f.call(ctx, "ListContainerStats"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats, nil
}

func (f *fakeRuntime) ListPodSandboxStats(ctx context.Context, _ *runtimeapi.PodSandboxStatsFilter) (list []*runtimeapi.PodSandboxStats, err error) {
	if err := f.call(ctx, "ListPodSandboxStats"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.processes == nil {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	for uid, n := range f.processes {
		list = append(list, &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(uid)}},
			Linux:      &runtimeapi.LinuxPodSandboxStats{Process: &runtimeapi.ProcessUsage{ProcessCount: &runtimeapi.UInt64Value{Value: n}}},
		})
	}
	return list, nil
}

// The rest is for tests.

// set changes what the runtime does.
func (f *fakeRuntime) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// intercept has a function called before each call.
func (f *fakeRuntime) intercept(before func(ctx context.Context, call string) error) {
	f.set(func() { f.before = before })
}

// newest is the newest attempt of a container, nil if there is none.
func (f *fakeRuntime) newest(name string) *fakeContainer {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found *fakeContainer
	for _, c := range f.containers {
		if c.Metadata.Name == name && (found == nil || found.Metadata.Attempt < c.Metadata.Attempt || found.CreatedAt < c.CreatedAt) {
			found = c
		}
	}
	return found
}

// did returns, and forgets, the calls that have changed something.
func (f *fakeRuntime) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// left counts sandboxes and containers.
func (f *fakeRuntime) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.boxes) + len(f.containers)
}

func (f *fakeRuntime) box() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, b := range f.boxes {
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return id
		}
	}
	return ""
}

// lists is how often all sandboxes were listed.
func (f *fakeRuntime) lists() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed
}

// writeLog makes the log of a container as large as given.
func writeLog(path string, size int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, make([]byte, size), 0o644)
}

// fakeImages has all images that are pulled, which takes no time.
type fakeImages struct {
	internalapi.ImageManagerService

	mu      sync.Mutex
	present map[string]*runtimeapi.Image
	removed []string
	pulls   []string // as IMAGE, or IMAGE for HANDLER
	pull    func(ctx context.Context, image string) error
}

func (f *fakeImages) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: f.present[spec.Image]}, nil
}

func (f *fakeImages) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	pull := f.pull
	pulled := spec.Image
	if spec.RuntimeHandler != "" {
		pulled += " for " + spec.RuntimeHandler
	}
	f.pulls = append(f.pulls, pulled)
	f.mu.Unlock()
	if pull != nil {
		if err := pull(ctx, spec.Image); err != nil {
			return "", err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present[spec.Image] = &runtimeapi.Image{Id: spec.Image, RepoTags: []string{spec.Image}, Size: 100}
	return spec.Image, nil
}

func (f *fakeImages) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.present)), nil
}

func (f *fakeImages) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.present, spec.Image)
	f.removed = append(f.removed, spec.Image)
	return nil
}

// gone are the images that were removed.
func (f *fakeImages) gone() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.removed)
}
