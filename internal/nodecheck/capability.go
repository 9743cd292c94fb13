package nodecheck

import (
	"fmt"
	"slices"
	"strings"
)

// Capability is something that a provider may or may not be able to do. Some of
// them are of use with others only: a check may need several.
type Capability string

// The capabilities. What needs none of them is expected of every provider: see
// Core.
const (
	// Core stands for the checks that need no capability.
	Core Capability = "core"
	// Commands: containers really run their command, with its arguments,
	// environment and working directory, and its exit code counts.
	Commands Capability = "commands"
	// Logs: the output of containers can be read.
	Logs Capability = "logs"
	// Exec: commands can be run in containers that run.
	Exec Capability = "exec"
	// Attach: clients can be connected to the main process of a container.
	Attach Capability = "attach"
	// PortForward: clients can be connected to ports of a pod.
	PortForward Capability = "port-forward"
	// Stats: the kubelet reports what pods use.
	Stats Capability = "stats"
	// Volumes: volumes of the kinds configMap, secret, downwardAPI, projected
	// and emptyDir; those that the node cannot have are refused.
	Volumes Capability = "volumes"
	// Isolation: pods cannot reach each other's files, environments and processes.
	Isolation Capability = "isolation"
	// Tokens: projected service account tokens.
	Tokens Capability = "tokens"
	// InitContainers: init containers run before the others.
	InitContainers Capability = "init-containers"
	// Sidecars: init containers with restartPolicy Always.
	Sidecars Capability = "sidecars"
	// Restarts: containers that have ended are started again, as the pod's
	// restartPolicy says.
	Restarts Capability = "restarts"
	// Deadlines: activeDeadlineSeconds.
	Deadlines Capability = "deadlines"
	// Probes: startup, readiness and liveness probes, by commands.
	Probes Capability = "probes"
	// Hooks: postStart and preStop, by commands.
	Hooks Capability = "hooks"
	// TerminationMessages: what a container leaves as its last words is in its
	// status.
	TerminationMessages Capability = "termination-messages"
	// EphemeralContainers: containers can be added to a pod that runs.
	EphemeralContainers Capability = "ephemeral-containers"
	// Resize: the resources of a container can be changed while it runs.
	Resize Capability = "resize"
	// SurvivesRestart: pods run on, as they are, while the node's agent is ended and
	// started again.
	SurvivesRestart Capability = "survives-restart"
)

// Capabilities returns all capabilities that checks need, in the order of
// reports, without Core.
func Capabilities() []Capability {
	return []Capability{
		Commands, Logs, Exec, Attach, PortForward, Stats, Volumes, Isolation, Tokens, InitContainers, Sidecars,
		Restarts, Deadlines, Probes, Hooks, TerminationMessages, EphemeralContainers, Resize, SurvivesRestart,
	}
}

// ParseCapabilities turns names into capabilities. "all" stands for all of them;
// Core is one that may be named, too.
func ParseCapabilities(names []string) ([]Capability, error) {
	known := append([]Capability{Core}, Capabilities()...)
	var list []Capability
	for _, name := range names {
		c := Capability(name)
		switch {
		case name == "all":
			list = append(list, known...)
		case slices.Contains(known, c):
			list = append(list, c)
		default:
			return nil, fmt.Errorf("there is no capability %q: use \"all\" or some of %s", name, join(known))
		}
	}
	return list, nil
}

func join(list []Capability) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}
