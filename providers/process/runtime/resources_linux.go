package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/cgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// refuseUnenforced refuses limits that have no effect on this machine. If the
// operator allows them, a warning is logged for each once: it is the same for all
// containers.
func (r *Runtime) refuseUnenforced(c *container, limits cgroup.Limits) error {
	unenforced := r.groups.Unenforced(limits)
	if len(unenforced) > 0 && !r.cfg.AllowUnenforcedLimits {
		return invalid("limits of container %s cannot be applied on this node (%s), which has no control group for them: its operator may set allowUnenforcedLimits", c.config.GetMetadata().GetName(), strings.Join(unenforced, ", "))
	}
	for _, limit := range unenforced {
		if _, warned := r.unenforced.LoadOrStore(limit, true); !warned {
			r.logger.WithFields(log.Fields{"limit": limit, "container": c.config.GetMetadata().GetName(), "cgroups": r.groups.String()}).
				Warn("a limit of a container has no effect, here and for all others: this node has no control group that enforces it")
		}
	}
	return nil
}

// UpdateContainerResources implements the CRI. Where nothing enforces a limit it
// is refused, unless the operator allows it.
func (r *Runtime) UpdateContainerResources(_ context.Context, id string, resources *runtimeapi.ContainerResources) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if err := refuseResources(resources.GetLinux()); err != nil {
		return err
	}
	if err := r.refuseUnenforced(c, r.limitsOf(resources.GetLinux())); err != nil {
		return err
	}
	c.op.Lock()
	defer c.op.Unlock()
	now := c.resourcesNow()
	if now == nil {
		now = &runtimeapi.LinuxContainerResources{}
	}
	proto.Merge(now, resources.GetLinux())
	if _, running := c.running(); running {
		// All of them: that of swap, if it was set, counts from that of memory.
		if err := c.spec.Group.Limit(r.groups.Enforced(r.limitsOf(now))); err != nil {
			return fmt.Errorf("resources of container %s: %w", id, err)
		}
	}
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
	spec.Limits = r.groups.Enforced(r.limitsOf(resources))
	err := errors.Join(shim.WriteRecord(c.dir, shim.SpecFile, spec), writeContainer(c.dir, c, config))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("resources of container %s: %w", c.id, err)
	}
	return nil
}
