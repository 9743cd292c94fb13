package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/filetree"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// containerFile is what is written of a container, besides what is for its shim.
const containerFile = "container.json"

// container is a container: what was asked for, and what became of it.
type container struct {
	id, dir, sandbox string
	config           *runtimeapi.ContainerConfig
	created          time.Time
	spec             *shim.Spec
	disk             periodic.Gauge[map[string]filetree.Used] // of its own directories, by name

	// op is held by what changes whether there is a shim: start and remove.
	op sync.Mutex
	// up is closed when the command runs, down when the container has ended.
	up, down chan struct{}
	upOnce   sync.Once

	mu      sync.Mutex
	began   bool // a start was begun, now or before a restart
	started *shim.Started
	exit    *shim.Exit
	shimPID int // of the shim that this runtime has started
	sample  sample
	// resources are those of the last update; nil are those of config.
	resources *runtimeapi.LinuxContainerResources
}

// containerRecord is what is written of a container.
type containerRecord struct {
	ID      string          `json:"id"`
	Sandbox string          `json:"sandbox"`
	Config  json.RawMessage `json:"config"`
	Created time.Time       `json:"created"`
}

func newContainer(id, dir, sandbox string, config *runtimeapi.ContainerConfig, created time.Time) *container {
	return &container{
		id: id, dir: dir, sandbox: sandbox, config: config, created: created,
		up: make(chan struct{}), down: make(chan struct{}),
	}
}

func (c *container) path(name string) string { return filepath.Join(c.dir, name) }

func containerName(sandbox string, m *runtimeapi.ContainerMetadata) string {
	return fmt.Sprintf("container %s/%s/%d", sandbox, m.GetName(), m.GetAttempt())
}

func (c *container) state() runtimeapi.ContainerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.exit != nil:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case c.started != nil:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_CREATED
}

// running returns the processes of a container that runs.
func (c *container) running() (shim.Started, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started == nil || c.exit != nil {
		return shim.Started{}, false
	}
	return *c.started, true
}

// mustRun is the error for what only can be done with a container that runs.
func (c *container) mustRun() error {
	if _, ok := c.running(); !ok {
		return status.Errorf(codes.FailedPrecondition, "container %s does not run", c.id)
	}
	return nil
}

func (r *Runtime) container(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.containers[id]; ok {
		return c, nil
	}
	return nil, notFound("container", id)
}

// allContainers are the containers, the newest first.
func (r *Runtime) allContainers() []*container {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.containers))
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *container) int { return b.created.Compare(a.created) })
	return all
}

func (r *Runtime) containersOf(sandbox string) []*container {
	return slices.DeleteFunc(r.allContainers(), func(c *container) bool { return c.sandbox != sandbox })
}

// CreateContainer implements the CRI: it checks what is asked for and writes it
// down.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	box, err := r.sandbox(sandboxID)
	if err != nil {
		return "", err
	}
	if config.GetMetadata().GetName() == "" {
		return "", invalid("the container has no metadata")
	}
	id := newID()
	c := newContainer(id, filepath.Join(r.cfg.Root, "containers", id), sandboxID, proto.CloneOf(config), time.Now())
	name := containerName(sandboxID, config.GetMetadata())
	if err := r.reserve(name, id); err != nil {
		return "", err
	}
	if err := r.create(c, box); err != nil {
		r.release(name)
		return "", err
	}
	r.publish(box, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return id, nil
}

func (r *Runtime) create(c *container, box *sandbox) error {
	mounts, err := r.mountsOf(c.config.GetMounts(), box)
	if err != nil {
		return err
	}
	files, err := r.catalog.find(c.config.GetImage().GetImage()).mounts(mounts)
	if err != nil {
		return err
	}
	mounts = append(files, mounts...)
	if c.spec, err = r.specOf(c, box, mounts); err != nil {
		return err
	}
	if err := r.refuseUnenforced(c, c.spec.Limits); err != nil {
		return err
	}
	c.spec.Limits = r.groups.Enforced(c.spec.Limits)
	// Callers that find it before it is whole wait.
	c.op.Lock()
	defer c.op.Unlock()
	if err := r.enter(c, box); err != nil {
		return err
	}
	if err := r.makeContainer(c, box, mounts); err != nil {
		r.forget(c)
		return fmt.Errorf("create container %s: %w", c.config.GetMetadata().GetName(), err)
	}
	return nil
}

// enter adds a container, if there may be one more. A stop of the sandbox
// finds it from then on.
func (r *Runtime) enter(c *container, box *sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if box.isStopped() {
		return status.Errorf(codes.FailedPrecondition, "sandbox %s was stopped", box.id)
	}
	count := 0
	for _, other := range r.containers {
		if other.state() != runtimeapi.ContainerState_CONTAINER_EXITED {
			count++
		}
	}
	if r.cfg.MaxContainers > 0 && count >= r.cfg.MaxContainers {
		return status.Errorf(codes.ResourceExhausted, "this node has %d containers, and may have no more: its operator may raise maxContainers", count)
	}
	r.containers[c.id] = c
	return nil
}

func (r *Runtime) forget(c *container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, c.id)
}

func (r *Runtime) makeContainer(c *container, box *sandbox, mounts []shim.Mount) error {
	if err := r.admit(box); err != nil {
		return err
	}
	return r.makeDir(c.dir, box.user, func(dir string) error {
		if err := r.makeDirs(dir, c.spec); err != nil {
			return err
		}
		if c.spec.Namespaces == nil {
			if err := linkMounts(filepath.Join(dir, mountsDir), mounts); err != nil {
				return err
			}
		}
		if err := shim.WriteRecord(dir, shim.SpecFile, c.spec); err != nil {
			return err
		}
		return writeContainer(dir, c, c.config)
	})
}

func (r *Runtime) readContainer(dir string) (*container, error) {
	var record containerRecord
	if err := shim.ReadRecord(dir, containerFile, &record); err != nil {
		return nil, err
	}
	c := newContainer(record.ID, dir, record.Sandbox, &runtimeapi.ContainerConfig{}, record.Created)
	if err := tolerant.Unmarshal(record.Config, c.config); err != nil {
		return nil, err
	}
	if c.id != filepath.Base(dir) {
		return nil, fmt.Errorf("it is the record of %q", c.id)
	}
	c.spec = &shim.Spec{}
	return c, shim.ReadRecord(dir, shim.SpecFile, c.spec)
}

// RemoveContainer implements the CRI.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return nil
	}
	return r.remove(ctx, c)
}

func (r *Runtime) remove(ctx context.Context, c *container) error {
	if err := r.stop(ctx, c, 0); err != nil {
		return err
	}
	c.op.Lock()
	defer c.op.Unlock()
	if r.isAlive(c) {
		return status.Errorf(codes.Unavailable, "container %s was started meanwhile: remove it again", c.id)
	}
	if _, err := r.container(c.id); err != nil {
		return nil
	}
	if err := removeDir(c.dir); err != nil {
		return fmt.Errorf("remove container %s: %w", c.id, err)
	}
	_ = c.spec.Group.Remove()
	r.forget(c)
	r.release(containerName(c.sandbox, c.config.GetMetadata()))
	if box, err := r.sandbox(c.sandbox); err == nil {
		r.publish(box, c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return nil
}

// isAlive reports whether a start was begun whose end is not known.
func (r *Runtime) isAlive(c *container) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began && c.exit == nil
}

// ListContainers implements the CRI.
func (r *Runtime) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var list []*runtimeapi.Container
	for _, c := range r.allContainers() {
		if filter.GetId() != "" && filter.GetId() != c.id ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox ||
			filter.GetState() != nil && filter.GetState().GetState() != c.state() ||
			!selects(filter.GetLabelSelector(), c.config.GetLabels()) {
			continue
		}
		list = append(list, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox, Metadata: proto.CloneOf(c.config.GetMetadata()),
			Image: proto.CloneOf(c.config.GetImage()), ImageRef: imageRef(c.config.GetImage()), ImageId: imageRef(c.config.GetImage()),
			State: c.state(), CreatedAt: c.created.UnixNano(),
			Labels: maps.Clone(c.config.GetLabels()), Annotations: maps.Clone(c.config.GetAnnotations()),
		})
	}
	return list, nil
}

// ReopenContainerLog implements the CRI.
func (r *Runtime) ReopenContainerLog(_ context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if err := c.mustRun(); err != nil {
		return err
	}
	if err := r.ask(c, shim.Request{Op: shim.OpReopen}); err != nil {
		return fmt.Errorf("reopen the log of container %s: %w", id, err)
	}
	return nil
}

// answerTime is how long a shim may take for what is done at once.
const answerTime = 3 * time.Second

// ask has the shim do something that is done at once.
func (r *Runtime) ask(c *container, request shim.Request) error {
	conn, err := shim.Dial(c.dir)
	if err != nil {
		return err
	}
	return r.askOver(conn, request)
}

// askOver is ask over a connection, which it closes.
func (r *Runtime) askOver(conn *shim.Conn, request shim.Request) error {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(r.ctx, func() { _ = conn.Close() })()
	conn.GiveUpAfter(answerTime)
	var response shim.Response
	if err := errors.Join(conn.Send(request), conn.Receive(&response)); err != nil {
		return err
	}
	if response.Error != "" {
		return errors.New(response.Error)
	}
	return nil
}

// writeContainer writes a container down in a directory.
func writeContainer(dir string, c *container, config *runtimeapi.ContainerConfig) error {
	data, err := protojson.Marshal(config)
	if err != nil {
		return err
	}
	return shim.WriteRecord(dir, containerFile, containerRecord{ID: c.id, Sandbox: c.sandbox, Config: data, Created: c.created})
}

// CheckpointContainer implements the CRI.
func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return status.Error(codes.Unimplemented, "processes cannot be checkpointed")
}
