package podengine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// The time for which a runtime must keep omitting what ran before it counts as
// lost. A runtime that restarts may answer empty lists for a while; one that shows
// the pod's sandbox and not its container is believed sooner.
const (
	lostAfter          = time.Minute
	lostInSandboxAfter = 10 * time.Second
)

// attempt is the last run of a container that the runtime was asked to start. It
// is on disk before the start: if the runtime forgets the container (a reboot, a
// state directory in memory), the pod still knows that the container has run.
type attempt struct {
	ID     string    `json:"id"`
	Number uint32    `json:"number"`
	At     time.Time `json:"at"`
	Boot   string    `json:"boot,omitempty"` // of the machine, as in Config.Boot
}

// recordStart persists that a container is about to be started. It fails if that
// cannot be written and another run of the container would be one too many.
func (w *worker) recordStart(pod *corev1.Pod, c *corev1.Container, id string, number uint32) error {
	if w.desiredState().attempts[c.Name].ID == id {
		return nil
	}
	err := w.change(func(d desired) desired {
		d.attempts = maps.Clone(d.attempts)
		if d.attempts == nil {
			d.attempts = map[string]attempt{}
		}
		d.attempts[c.Name] = attempt{ID: id, Number: number, At: time.Now(), Boot: w.engine.cfg.Boot}
		return d
	})
	if err == nil || podspec.ShouldRestart(pod, c, podspec.ExitUnknown) {
		return nil // without a record it would be started again, as it is with one
	}
	_ = w.forgetStart(c.Name, id)
	return fmt.Errorf("container %s must not run twice, and its start cannot be recorded: %w", c.Name, err)
}

// forgetStart undoes recordStart for a container that has not run and is removed.
func (w *worker) forgetStart(name, id string) error {
	if w.desiredState().attempts[name].ID != id {
		return nil
	}
	return w.change(func(d desired) desired {
		d.attempts = maps.Clone(d.attempts)
		delete(d.attempts, name)
		return d
	})
}

// recall adds to a view of the runtime the attempts that the runtime does not show
// and whose end is known from the pod's status, and lists those whose end is not
// known.
func (w *worker) recall(v *runtimeView) {
	pod, _ := w.current()
	attempts := w.desiredState().attempts
	eachContainer(pod, func(_ kind, c *corev1.Container) {
		last, ran := attempts[c.Name]
		if s := w.statusBefore(c.Name); s != nil {
			for _, ended := range w.endsOf(s) {
				if v.byID(c.Name, ended.id) == nil {
					v.add(ended)
				}
			}
			if s.State.Running != nil && !ran {
				last = attempt{ID: bareID(s.ContainerID), Number: uint32(s.RestartCount), At: s.State.Running.StartedAt.Time}
				ran = true
			}
		}
		if ran && last.ID != "" && v.byID(c.Name, last.ID) == nil {
			v.missing = append(v.missing, missed{c.Name, last})
		}
	})
}

// endsOf are the attempts of a container whose end its status has.
func (w *worker) endsOf(s *corev1.ContainerStatus) (ends []*container) {
	number := s.RestartCount
	add := func(t *corev1.ContainerStateTerminated, number int32) {
		if t == nil || t.ContainerID == "" {
			return
		}
		ends = append(ends, &container{
			id:       bareID(t.ContainerID),
			name:     s.Name,
			attempt:  uint32(max(number, 0)),
			phase:    exited,
			created:  t.StartedAt.Time,
			started:  t.StartedAt.Time,
			finished: t.FinishedAt.Time,
			exitCode: t.ExitCode,
			image:    s.Image,
			imageRef: s.ImageID,
			recalled: t,
		})
	}
	add(s.State.Terminated, number)
	if last := s.LastTerminationState.Terminated; last != nil && last.ContainerID != s.ContainerID {
		number--
	}
	add(s.LastTerminationState.Terminated, number)
	return ends
}

// missed is an attempt of which neither the runtime nor the status knows what
// became.
type missed struct {
	name string
	attempt
}

// absence is what a worker remembers of what the runtime omits.
type absence struct {
	since        time.Time // when it began to omit a container that was started; zero if it does not
	sandboxSince time.Time // when it began to omit the sandbox; zero if it does not
	hadSandbox   bool      // it has shown one
	replaceAt    time.Time // when a sandbox that is omitted is replaced
}

// confirm is called with each view of the runtime. What the runtime omits is taken
// for lost, which ends it, once that has lasted; until then it returns an error,
// and the pod is left as it is. A container that ran before the machine was booted
// is lost at once.
func (w *worker) confirm(v *runtimeView, now time.Time) error {
	w.absent.replaceAt = w.vanished(v, now)
	if len(v.missing) == 0 {
		w.absent.since = time.Time{}
		return nil
	}
	if w.absent.since.IsZero() {
		w.absent.since = now
	}
	due := w.absent.since.Add(lostAfter)
	if v.sandbox() != nil {
		due = w.absent.since.Add(lostInSandboxAfter)
	}
	for _, m := range v.missing {
		if now.Before(due) && !w.engine.rebooted(m.attempt) {
			return fmt.Errorf("the container runtime does not show container %s, which was started: it counts as lost in %v", m.name, due.Sub(now).Round(time.Second))
		}
	}
	for _, m := range v.missing {
		v.add(w.lost(m))
	}
	v.missing = nil
	return nil
}

// rebooted reports whether the machine was booted after an attempt began.
func (e *Engine) rebooted(a attempt) bool {
	return a.Boot != "" && e.cfg.Boot != "" && a.Boot != e.cfg.Boot
}

// startedSinceBoot reports whether a container of the pod was started since the machine was booted.
func (w *worker) startedSinceBoot() bool {
	for _, a := range w.desiredState().attempts {
		if !w.engine.rebooted(a) {
			return true
		}
	}
	return false
}

// lost is the end of an attempt that the runtime has forgotten.
func (w *worker) lost(m missed) *container {
	log.G(w.engine.ctx).WithFields(log.Fields{"uid": string(w.pod.UID), "container": m.name, "id": m.ID}).
		Warn("The container runtime has lost a container that ran")
	return &container{
		id: m.ID, name: m.name, attempt: m.Number, phase: exited, exitCode: podspec.ExitUnknown,
		created: m.At, started: m.At, finished: w.absent.since,
		recalled: &corev1.ContainerStateTerminated{
			ExitCode:    podspec.ExitUnknown,
			Reason:      podspec.ReasonContainerStatusUnknown,
			Message:     podspec.MessageContainerStatusUnknown,
			StartedAt:   metav1.NewTime(m.At),
			FinishedAt:  metav1.NewTime(w.absent.since),
			ContainerID: w.engine.runtimeName.of(m.ID),
		},
	}
}

// vanished returns until when a sandbox that the runtime omits is not replaced; zero
// if the pod had none since the machine was booted.
func (w *worker) vanished(v *runtimeView, now time.Time) time.Time {
	if v.sandbox() != nil {
		w.absent.hadSandbox, w.absent.sandboxSince = true, time.Time{}
		return time.Time{}
	}
	if !w.absent.hadSandbox && !w.startedSinceBoot() {
		return time.Time{}
	}
	if w.absent.sandboxSince.IsZero() {
		w.absent.sandboxSince = now
	}
	return w.absent.sandboxSince.Add(lostAfter)
}

// add adds an attempt of a container to a view.
func (v *runtimeView) add(c *container) {
	v.containers[c.name] = append(v.containers[c.name], c)
	slices.SortFunc(v.containers[c.name], newestFirst)
}

// settleUnknown treats containers of unknown state as ended once the runtime has
// stopped them, regardless of the state that it reports then. One that exits with 0 has
// done so since it was asked to stop, which is no success, also if the runtime answers again.
// One that runs on, since its stop has failed, ends as any other does.
func (w *worker) settleUnknown(v *runtimeView) {
	for _, attempts := range v.containers {
		for i, c := range attempts {
			if c.phase == running {
				w.forgetUnknown(c.id)
			}
			stopped := w.stoppedUnknown(c)
			if c.phase == unknown && stopped && w.endingOf(c.id).stopped {
				c.phase = exited
				if c.finished.IsZero() {
					c.finished = c.created
				}
			}
			if c.phase == exited && c.exitCode == 0 && stopped {
				settled := *c // others may read it, too
				settled.exitCode, settled.reason = podspec.ExitUnknown, podspec.ReasonContainerStatusUnknown
				attempts[i] = &settled
			}
		}
	}
}

// forgetUnknown forgets that the state of a container was unknown that was not stopped then, and runs.
func (w *worker) forgetUnknown(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if done := w.endings[id]; done != nil && !done.stopped {
		done.unknown = false
	}
}

// stoppedUnknown reports whether a container was asked to stop while its state was unknown: by
// this process, or by an earlier one that has reported such an end of it.
func (w *worker) stoppedUnknown(c *container) bool {
	w.mu.Lock()
	done := w.endings[c.id]
	w.mu.Unlock()
	if done != nil && done.unknown {
		return true
	}
	if c.phase != exited || c.exitCode != 0 || c.recalled != nil {
		return false
	}
	if was := w.statusBefore(c.name); was != nil {
		for _, end := range endsOf(was) {
			if end.Reason == podspec.ReasonContainerStatusUnknown && bareID(end.ContainerID) == c.id {
				return true
			}
		}
	}
	return false
}
