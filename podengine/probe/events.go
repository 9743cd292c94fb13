package probe

// The reasons of the events that a Manager records on containers.
const (
	// ReasonUnhealthy: a probe failed, or could not be made.
	ReasonUnhealthy = "Unhealthy"
	// ReasonProbeWarning: a probe succeeded, but something is odd about it.
	ReasonProbeWarning = "ProbeWarning"
)
