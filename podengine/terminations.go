package podengine

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// newTerminations makes the counter of containers that have ended, under a kubelet's
// name and with its labels.
func newTerminations(registry prometheus.Registerer) (*prometheus.CounterVec, error) {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_terminated_containers_total",
		Help: "Cumulative number of container terminations.",
	}, []string{"container_type", "exit_code", "reason"})
	if registry == nil {
		return counter, nil
	}
	err := registry.Register(counter)
	if registered := (prometheus.AlreadyRegisteredError{}); errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	}
	return counter, err
}

// countTerminations counts the containers that have ended since a status; before is nil
// for a pod of which nothing was known.
func countTerminations(counter *prometheus.CounterVec, before, now *corev1.PodStatus) {
	if before == nil {
		before = &corev1.PodStatus{}
	}
	for _, kind := range []struct {
		name        string
		before, now []corev1.ContainerStatus
	}{
		{"container", before.ContainerStatuses, now.ContainerStatuses},
		{"init_container", before.InitContainerStatuses, now.InitContainerStatuses},
		{"ephemeral_container", before.EphemeralContainerStatuses, now.EphemeralContainerStatuses},
	} {
		known := map[string]bool{} // by ID
		for i := range kind.before {
			for _, ended := range endsOf(&kind.before[i]) {
				known[ended.ContainerID] = true
			}
		}
		for i := range kind.now {
			for _, ended := range endsOf(&kind.now[i]) {
				if !known[ended.ContainerID] {
					counter.WithLabelValues(kind.name, strconv.Itoa(int(ended.ExitCode)), ended.Reason).Inc()
				}
			}
		}
	}
}

// endsOf are the ends that the status of a container has. A container that was
// never made has none.
func endsOf(s *corev1.ContainerStatus) (all []*corev1.ContainerStateTerminated) {
	for _, state := range []*corev1.ContainerState{&s.State, &s.LastTerminationState} {
		if state.Terminated != nil && state.Terminated.ContainerID != "" {
			all = append(all, state.Terminated)
		}
	}
	return all
}
