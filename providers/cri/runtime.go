package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/cri/internal/podcgroup"
)

// runtimeConfigurer is what a runtime says of its configuration.
type runtimeConfigurer interface {
	RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// adjust adds to the engine's configuration what depends on the runtime.
func (p *Provider) adjust(cfg Config) func(*podengine.Config) {
	return func(engine *podengine.Config) {
		engine.NeverRan = neverRan
		engine.Node.OOMGroup = podcgroup.EndsAsAWhole()
		engine.Node.NoSwap = podcgroup.LimitsSwap()
		engine.Cgroups = podcgroup.New(podcgroup.Options{
			Driver:    func(ctx context.Context) (podcgroup.Driver, error) { return driverOf(ctx, p.runtime, cfg.CgroupDriver) },
			Root:      cfg.CgroupParent,
			Resources: engine.Node.PodResources,
		})
	}
}

// driverOf is the cgroup driver of a runtime, or the configured one if the runtime does
// not serve the question.
func driverOf(ctx context.Context, runtime runtimeConfigurer, configured podcgroup.Driver) (podcgroup.Driver, error) {
	answer, err := runtime.RuntimeConfig(ctx)
	if status.Code(err) == codes.Unimplemented || err == nil && answer.GetLinux() == nil {
		return configured, nil
	}
	if err != nil {
		return "", err
	}
	if answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		return podcgroup.Systemd, nil
	}
	return podcgroup.Cgroupfs, nil
}

// neverRan reports whether containerd gave up the start of a container before its
// command ran, since the process that had asked for it went away. containerd starts a
// container in two steps, of which the second runs the command, and has only its
// message to say in which it was. In the first step it starts a shim, by a program that
// it kills if it gives up meanwhile, and then asks the shim.
func neverRan(s *runtimeapi.ContainerStatus) bool {
	if s.GetStartedAt() != 0 || s.GetReason() != "StartError" {
		return false
	}
	first, ok := strings.CutPrefix(s.GetMessage(), "failed to create containerd task: ")
	return ok && (strings.Contains(first, context.Canceled.Error()) ||
		strings.HasPrefix(first, "failed to start shim: ") && strings.Contains(first, "signal: killed"))
}
