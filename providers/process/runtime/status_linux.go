package runtime

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// ContainerStatus implements the CRI.
func (r *Runtime) ContainerStatus(_ context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := r.container(id)
	if err != nil {
		return nil, err
	}
	response := &runtimeapi.ContainerStatusResponse{Status: r.statusOf(c)}
	if verbose {
		info, err := json.Marshal(r.infoOf(c))
		if err != nil {
			return nil, err
		}
		response.Info = map[string]string{"info": string(info)}
	}
	return response, nil
}

// info is the additional part of the verbose status.
type info struct {
	SandboxID string        `json:"sandboxID"`
	PID       int           `json:"pid,omitempty"`
	Dir       string        `json:"dir"`
	Path      string        `json:"path"`
	Isolation string        `json:"isolation"`
	Cgroups   []string      `json:"cgroups,omitempty"`
	Started   *shim.Started `json:"started,omitempty"`
	Exit      *shim.Exit    `json:"exit,omitempty"`
}

func (r *Runtime) infoOf(c *container) info {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := info{SandboxID: c.sandbox, Dir: c.dir, Path: c.spec.Command.Path, Isolation: IsolationNone, Started: c.started, Exit: c.exit}
	if c.spec.Namespaces != nil {
		i.Isolation = IsolationNamespaces
	}
	if c.started != nil && c.exit == nil {
		i.PID = c.started.PID
	}
	i.Cgroups = slices.Compact(slices.Sorted(maps.Values(c.spec.Group)))
	return i
}

// statusesOf are the statuses of a sandbox's containers.
func (r *Runtime) statusesOf(sandbox string) []*runtimeapi.ContainerStatus {
	var all []*runtimeapi.ContainerStatus
	for _, c := range r.containersOf(sandbox) {
		all = append(all, r.statusOf(c))
	}
	return all
}

func (r *Runtime) statusOf(c *container) *runtimeapi.ContainerStatus {
	config := c.config
	s := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: proto.CloneOf(config.GetMetadata()), State: c.state(), CreatedAt: c.created.UnixNano(),
		Image: proto.CloneOf(config.GetImage()), ImageRef: imageRef(config.GetImage()), ImageId: imageRef(config.GetImage()),
		Labels: maps.Clone(config.GetLabels()), Annotations: maps.Clone(config.GetAnnotations()),
		StopSignal: config.GetStopSignal(), User: r.userStatus(c), LogPath: c.spec.LogPath,
	}
	for _, m := range config.GetMounts() {
		s.Mounts = append(s.Mounts, proto.CloneOf(m))
	}
	if res := c.resourcesNow(); res != nil {
		s.Resources = &runtimeapi.ContainerResources{Linux: res}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started != nil && (c.exit == nil || c.exit.Reason != shim.ReasonStartError) {
		s.StartedAt = c.started.Time.UnixNano()
	}
	if c.exit != nil {
		s.FinishedAt, s.ExitCode = c.exit.Time.UnixNano(), int32(c.exit.Code)
		s.Reason, s.Message = c.exit.Reason, c.exit.Message
	}
	return s
}

func (r *Runtime) userStatus(c *container) *runtimeapi.ContainerUser {
	linux := &runtimeapi.LinuxContainerUser{Uid: r.policy.defaultUser.uid, Gid: r.policy.defaultUser.gid}
	if u := c.spec.Command.User; u != nil {
		linux.Uid, linux.Gid = int64(u.UID), int64(u.GID)
		for _, g := range u.Groups {
			linux.SupplementalGroups = append(linux.SupplementalGroups, int64(g))
		}
	}
	return &runtimeapi.ContainerUser{Linux: linux}
}
