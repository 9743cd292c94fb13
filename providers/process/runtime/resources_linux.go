package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/cgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// warnUnenforced tells the operator which limits have no effect on this machine,
// each once: it is the same for all containers.
func (r *Runtime) warnUnenforced(c *container, limits cgroup.Limits) {
	for _, limit := range r.groups.Unenforced(limits) {
		if _, said := r.unenforced.LoadOrStore(limit, true); !said {
			r.logger.WithFields(log.Fields{"limit": limit, "container": c.config.GetMetadata().GetName(), "cgroups": r.groups.String()}).
				Warn("a limit of a container has no effect, here and for all others: this node has no control group that enforces it")
		}
	}
}

// UpdateContainerResources implements the CRI. Where nothing enforces a limit it
// succeeds, and a warning is logged.
func (r *Runtime) UpdateContainerResources(_ context.Context, id string, resources *runtimeapi.ContainerResources) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if err := refuseResources(resources.GetLinux()); err != nil {
		return err
	}
	limits := limitsOf(resources.GetLinux())
	r.warnUnenforced(c, limits)
	c.op.Lock()
	defer c.op.Unlock()
	if _, running := c.running(); running {
		if err := c.spec.Group.Limit(limits); err != nil {
			return fmt.Errorf("resources of container %s: %w", id, err)
		}
	}
	now := c.resourcesNow()
	if now == nil {
		now = &runtimeapi.LinuxContainerResources{}
	}
	proto.Merge(now, resources.GetLinux())
	c.mu.Lock()
	c.resources = now
	c.mu.Unlock()
	return r.rewrite(c, now)
}

// resourcesNow are the container's resources, as they were updated.
func (c *container) resourcesNow() *runtimeapi.LinuxContainerResources {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resources != nil {
		return proto.CloneOf(c.resources)
	}
	return proto.CloneOf(c.config.GetLinux().GetResources())
}

// rewrite writes a container down again, for a start that is still to come and
// for the next runtime.
func (r *Runtime) rewrite(c *container, resources *runtimeapi.LinuxContainerResources) error {
	config := proto.CloneOf(c.config)
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	config.Linux.Resources = resources
	spec := *c.spec
	spec.Limits = limitsOf(resources)
	err := errors.Join(shim.WriteRecord(c.dir, shim.SpecFile, spec), writeContainer(c.dir, c, config))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("resources of container %s: %w", c.id, err)
	}
	return nil
}
