package probe

import corev1 "k8s.io/api/core/v1"

// Outcome is how one probe ended.
type Outcome string

const (
	// Success: the container answered as it should.
	Success Outcome = "success"
	// Warning: a success with something that a person should know, such as a
	// redirect to another host, which was not followed.
	Warning Outcome = "warning"
	// Failure: the container did not answer, or not as it should.
	Failure Outcome = "failure"
	// Unknown: the probe could not be made. It says nothing of the container.
	Unknown Outcome = "unknown"
)

// Kind is what a probe is for. Its text is that of the kubelet's events.
type Kind string

const (
	// Startup probes hold the others back until they succeed.
	Startup Kind = "Startup"
	// Liveness probes have a container killed when they fail.
	Liveness Kind = "Liveness"
	// Readiness probes say whether a container takes requests.
	Readiness Kind = "Readiness"
)

// of returns a container's probe of this kind, nil if it has none.
func (k Kind) of(c *corev1.Container) *corev1.Probe {
	switch k {
	case Startup:
		return c.StartupProbe
	case Liveness:
		return c.LivenessProbe
	default:
		return c.ReadinessProbe
	}
}
