package mock

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stage is how far a pod has come.
type stage string

const (
	stagePending stage = "pending"
	stageRunning stage = "running"
	stageBackOff stage = "backoff" // exited, to be started again
	stageEnded   stage = "ended"
)

const (
	exitCodeKilled = 137
	longestBackOff = 5 * time.Minute
)

// held is a pod that the provider holds. The provider's lock guards it.
type held struct {
	pod    kept
	script script
	ip     string
	qos    corev1.PodQOSClass // which the API sets

	created time.Time
	stage   stage
	first   time.Time // start of the pod's first instance
	current instance  // of all but init and ephemeral containers
	last    *instance // the one before

	stopAt time.Time // zero unless the pod is to be stopped

	conditions [len(conditionTypes)]lastCondition
	ephemeral  map[string]time.Time // start of the ephemeral containers; nil if there are none

	timer   *time.Timer
	changed chan struct{} // closed at the next change; nil if nobody waits for it

	restart  int32
	exceeded bool // its active deadline
	killed   bool // it will not stop by itself by stopAt
	gone     bool // forgotten by the provider
}

// instance is one run of a container.
type instance struct {
	started, ready, ended time.Time // zero if it has not
	code                  int32
}

func (i instance) isReady() bool { return i.running() && !i.ready.IsZero() }

func (i instance) running() bool { return !i.started.IsZero() && i.ended.IsZero() }

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// transition is what happens to a pod next.
type transition string

const (
	becomeRunning transition = "start"
	becomeReady   transition = "ready"
	exit          transition = "exit"
	startAgain    transition = "restart"
	exceed        transition = "exceed" // its active deadline
	stop          transition = "stop"
)

// next returns what happens to the pod next by its script, and when.
func (h *held) next() (what transition, at time.Time, ok bool) {
	consider := func(w transition, t time.Time) {
		if !ok || t.Before(at) {
			what, at, ok = w, t, true
		}
	}
	if h.stage == stageEnded {
		return "", time.Time{}, false
	}
	if !h.stopAt.IsZero() {
		consider(stop, h.stopAt)
	}
	if seconds := h.pod.activeDeadline; seconds != nil {
		consider(exceed, h.created.Add(time.Duration(*seconds)*time.Second))
	}
	switch h.stage {
	case stagePending:
		consider(becomeRunning, h.created.Add(h.script.startsAfter(h.pod.uid)))
	case stageRunning:
		if h.current.ready.IsZero() {
			consider(becomeReady, h.current.started.Add(h.script.readyDelay))
		}
		if h.script.runFor != nil {
			consider(exit, h.current.started.Add(*h.script.runFor))
		}
	case stageBackOff:
		consider(startAgain, h.current.ended.Add(backOff(h.restart)))
	}
	return what, at, ok
}

// apply lets what happen at the given time.
func (h *held) apply(what transition, at time.Time) {
	switch what {
	case becomeRunning:
		h.stage, h.first, h.current = stageRunning, at, instance{started: at}
	case becomeReady:
		h.current.ready = at
	case exit:
		if h.restarts() {
			h.stage = stageBackOff
			h.current.ended, h.current.code = at, h.script.exitCode
			return
		}
		h.end(at, h.script.exitCode)
	case startAgain:
		last := h.current
		h.last, h.current = &last, instance{started: at}
		h.stage = stageRunning
		h.restart++
	case exceed:
		h.exceeded = true
		h.end(at, exitCodeKilled)
	case stop:
		if h.killed || h.stage == stagePending {
			h.end(at, exitCodeKilled)
		} else {
			h.end(at, 0)
		}
	}
}

// end stops what runs with the given code. Containers that have exited keep
// their own.
func (h *held) end(at time.Time, code int32) {
	if h.current.ended.IsZero() {
		h.current.ended, h.current.code = at, code
	}
	h.stage = stageEnded
}

// restarts reports whether the pod's containers are started again when they exit.
func (h *held) restarts() bool {
	switch h.pod.restartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return h.script.exitCode != 0
	}
	return true
}

// backOff is how long a container waits for its next start: 1s, 2s, 4s, ...
func backOff(restarts int32) time.Duration {
	return min(time.Second<<min(restarts, 20), longestBackOff)
}
