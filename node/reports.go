package node

import (
	"github.com/virtual-kubelet/virtual-kubelet/internal/podlifecycle"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
)

// PodReport is how far a pod has come, with its last error and next try, for people. It is
// no part of a pod's status: it begins again with each process.
type PodReport = podlifecycle.PodReport

// PodReports returns a report of each pod of which the controller knows something, by
// namespace and name. Safe for concurrent use.
func (pc *PodController) PodReports() []PodReport { return pc.lifecycle.PodReports() }

// CallMinute sums up the calls of a method of the provider that returned in one minute.
type CallMinute = providercalls.Minute

// CallHistory has the calls of one method in the last half hour, minute by minute, and those
// that have not returned.
type CallHistory = providercalls.MethodHistory

// History returns the calls of providers in the last half hour and at the moment, of those
// methods that were called, by name. Of a nil Metrics it is empty. Safe for concurrent use.
func (m *Metrics) History() []CallHistory { return m.calls().History() }
