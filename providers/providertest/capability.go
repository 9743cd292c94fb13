package providertest

import "github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"

// Capability is something that a provider may or may not be able to do.
type Capability = nodecheck.Capability

// The capabilities that can be declared. A check may need several: that of the
// log that is followed to its end needs Logs and Commands.
const (
	// Commands: containers really run their command, with its arguments,
	// environment and working directory, and its exit code counts.
	Commands = nodecheck.Commands
	// Logs: the output of containers can be read.
	Logs = nodecheck.Logs
	// Exec: commands can be run in containers that run. Without Commands, a
	// handful of them: echo, cat, exit, true, and sh -c with these.
	Exec = nodecheck.Exec
	// Attach: clients can be connected to the main process of a container.
	Attach = nodecheck.Attach
	// PortForward: clients can be connected to ports of a pod. A container that
	// is not really run has to send back what comes.
	PortForward = nodecheck.PortForward
	// Stats: /stats/summary has the pods, and /metrics/resource CPU, memory and start
	// time of their containers.
	Stats = nodecheck.Stats
	// Volumes: volumes of the kinds configMap, secret, downwardAPI, projected
	// and emptyDir; those that the node cannot have are refused.
	Volumes = nodecheck.Volumes
	// Isolation: pods cannot reach each other's files, environments and processes.
	Isolation = nodecheck.Isolation
	// Tokens: projected service account tokens.
	Tokens = nodecheck.Tokens
	// InitContainers: init containers run before the others.
	InitContainers = nodecheck.InitContainers
	// Sidecars: init containers with restartPolicy Always.
	Sidecars = nodecheck.Sidecars
	// Restarts: containers that have ended are started again, as the pod's
	// restartPolicy says.
	Restarts = nodecheck.Restarts
	// Deadlines: activeDeadlineSeconds.
	Deadlines = nodecheck.Deadlines
	// Probes: startup, readiness and liveness probes, by commands.
	Probes = nodecheck.Probes
	// Hooks: postStart and preStop, by commands.
	Hooks = nodecheck.Hooks
	// TerminationMessages: what a container leaves as its last words is in its
	// status.
	TerminationMessages = nodecheck.TerminationMessages
	// EphemeralContainers: containers can be added to a pod that runs.
	EphemeralContainers = nodecheck.EphemeralContainers
	// Resize: the resources of a container can be changed while it runs.
	Resize = nodecheck.Resize
	// SurvivesRestart: pods run on, as they are, while the provider is closed
	// and a new one is made.
	SurvivesRestart = nodecheck.SurvivesRestart
)

// All returns all capabilities.
func All() []Capability { return nodecheck.Capabilities() }
