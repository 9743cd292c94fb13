package runtime

import (
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version implements the CRI.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "process", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status implements the CRI.
func (r *Runtime) Status(_ context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	up := !r.closed
	r.mu.Unlock()
	reason, message := "", ""
	if !up {
		reason, message = "Closed", "the runtime is closed"
	}
	response := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: up, Reason: reason, Message: message},
			{Type: "NetworkReady", Status: up, Reason: reason, Message: message},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{
			{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: r.isolation == IsolationNamespaces}},
			{Name: handler, Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: r.isolation == IsolationNamespaces}},
		},
		// Images have no groups, but as another user than root a container keeps our own.
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: r.policy.root},
	}
	if verbose {
		config, err := json.Marshal(r.cfg)
		if err != nil {
			return nil, err
		}
		response.Info = map[string]string{"config": string(config), "isolation": r.isolation, "cgroups": r.groups.String()}
	}
	return response, nil
}

// UpdateRuntimeConfig implements the CRI: pods have the machine's addresses, so
// that there is nothing to do.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// RuntimeConfig implements the CRI.
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

// ListMetricDescriptors implements the CRI: there are none.
func (r *Runtime) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, nil
}

// ListPodSandboxMetrics implements the CRI: there are none.
func (r *Runtime) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, nil
}
