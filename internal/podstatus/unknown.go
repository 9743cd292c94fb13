package podstatus

// ExitUnknown, ReasonUnknown and MessageUnknown are the exit code, reason and message of a
// container whose end nobody saw, as a kubelet reports them.
const (
	ExitUnknown    = 137
	ReasonUnknown  = "ContainerStatusUnknown"
	MessageUnknown = "The container could not be located when the pod was terminated"
)
