package podengine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// view is what the decision about a pod depends on.
type view struct {
	now     time.Time
	pod     *corev1.Pod
	started time.Time // when the node took the pod

	// stopping is set once the pod is to end: it is deleted, or has failed as
	// a whole.
	stopping bool

	sandbox *sandbox // the newest; nil if there is none
	// vanished is until when a sandbox that the runtime does not show is not
	// replaced; zero if the pod has had none.
	vanished time.Time
	// containers are the newest attempts, by name of the container.
	containers map[string]*container

	// failed says until when an action that failed is not tried again, by name
	// of the container; the sandbox has the empty name.
	failed map[string]time.Time
	// crashed is until when a container stays down that has ended, by name.
	crashed map[string]time.Time
	// unstartable are the containers that could not be started, time and again,
	// though the runtime has them as created; by ID.
	unstartable map[string]bool
	// applied are the resources that containers were given since their start,
	// by ID.
	applied map[string]string
	// restarting are the attempts that are stopped, or were, to be started again
	// however they end; by ID.
	restarting map[string]bool
	// probed is what probes say of containers that run, by name.
	probed map[string]probed
}

// sandbox is a pod's place in the runtime.
type sandbox struct {
	id      string
	attempt uint32
	ready   bool
	created time.Time
	handler string // that it was made with: empty is the runtime's default
	ips     []string
}

// phase is what a container is at.
type phase string

const (
	created phase = "created"
	running phase = "running"
	exited  phase = "exited"
	// aborted is one whose command never ran, and never will: the runtime gave
	// up its start when the process that had asked for it went away.
	aborted phase = "aborted"
	// unknown: the runtime cannot report whether it runs. It has to be stopped
	// before another attempt.
	unknown phase = "unknown"
)

// mayRun reports whether the container runs, as far as is known.
func (c *container) mayRun() bool { return c.phase == running || c.phase == unknown }

// container is an attempt of a container in the runtime.
type container struct {
	id      string
	name    string
	attempt uint32
	sandbox string
	phase   phase
	hash    string // of the spec that it was made from

	created, started, finished time.Time
	exitCode                   int32
	reason, message            string

	image, imageRef string
	resources       string // that it was made with; empty if it is not known
	user            *corev1.ContainerUser
	recursive       []string // where it has mounts that are read-only with all below them

	// recalled is the end of one that the runtime does not show: the pod's status
	// has it, or it is lost. Nil for those that the runtime shows.
	recalled *corev1.ContainerStateTerminated
}

// probed is what probes say of a container that runs.
type probed struct {
	started bool   // its startup probe has succeeded, or it has none
	failed  string // why it has to be killed, empty if it has not
}

// verb is something to do about a pod.
type verb string

const (
	doNothing verb = "nothing" // until something happens, or action.at
	doSandbox verb = "sandbox" // make a new sandbox
	doStart   verb = "start"   // pull the image, create and start a container
	doLaunch  verb = "launch"  // start a container that was created before
	doKill    verb = "kill"    // stop a container, which is started again if action.again is set
	doDiscard verb = "discard" // remove a container whose command has not run, and will not
	doResize  verb = "resize"  // give a container that runs other resources
	doExpire  verb = "expire"  // end the pod, which has run too long
	doFail    verb = "fail"    // end the pod, which is to run once and has lost its sandbox
	doRestart verb = "restart" // end all containers, to start them all again
	doStop    verb = "stop"    // stop all containers, then the sandbox
	doEnd     verb = "end"     // nothing runs, and nothing will
)

// action is the next thing to do about a pod.
type action struct {
	verb      verb
	container string    // by name
	id        string    // of its attempt
	why       string    // for the event
	again     bool      // what is stopped is started again, however it ends
	resumed   bool      // a stop that has not come to an end is asked for again, and for no other reason
	at        time.Time // with doNothing: when to look again; zero means never
	held      []string  // containers that the crash-loop back-off keeps from their start, by name
}
