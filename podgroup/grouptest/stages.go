package grouptest

import (
	"fmt"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// progress makes all changes that are due. The caller holds w.mu.
func (w *World) progress() {
	now := w.now()
	forgets := w.forgets(now)
	w.units = slices.DeleteFunc(w.units, func(u *Unit) bool {
		before := u.Phase
		gone := w.progressOf(u, now) || forgets(u)
		if gone {
			u.Phase = podgroup.Gone
		}
		if u.Phase != before {
			w.changed(u)
		}
		return gone
	})
}

// progressOf makes the changes of a unit that are due, and reports whether it is gone.
func (w *World) progressOf(u *Unit, now time.Time) (gone bool) {
	if u.Phase == podgroup.Pending && u.started.IsZero() && !now.Before(u.Created.Add(w.step)) {
		u.run(u.Created.Add(w.step))
	}
	if u.Phase == podgroup.Updating && !now.Before(u.updated.Add(w.step)) {
		u.Phase = podgroup.Running
	}
	if end := u.started.Add(u.Spec.Deadline); u.Spec.Deadline > 0 && u.Phase == podgroup.Running && !now.Before(end) {
		u.end(podgroup.Failed, 137, end)
	}
	return !u.deleted.IsZero() && !now.Before(u.deleted.Add(max(w.step, u.Spec.Grace)))
}

// forgets returns a function that reports whether a unit has ended for so long that it vanishes.
func (w *World) forgets(now time.Time) func(u *Unit) bool {
	var ends []time.Time
	if w.retention > 0 && w.newest > 0 {
		for _, u := range w.units {
			if u.Over() {
				ends = append(ends, u.Ended)
			}
		}
		slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	}
	return func(u *Unit) bool {
		isKept := w.newest > 0 && (len(ends) <= w.newest || u.Ended.After(ends[w.newest]))
		return u.Over() && w.retention > 0 && !now.Before(u.Ended.Add(w.retention)) && !isKept
	}
}

// run starts the containers. Init containers have completed.
func (u *Unit) run(at time.Time) {
	u.started, u.Phase = at, podgroup.Running
	u.IPs = []string{fmt.Sprintf("10.200.%d.%d", u.number/250%250, 1+u.number%250)}
	for i := range u.Containers {
		c := &u.Containers[i]
		u.start(c, at)
		if i < len(u.Spec.InitContainers) {
			c.Now = podgroup.Run{State: podgroup.Terminated, Reason: "Completed", Started: at, Finished: at}
		}
	}
	u.event("Normal", "Started", "Started the containers", at)
}

func (u *Unit) start(c *podgroup.Container, at time.Time) {
	c.Now = podgroup.Run{State: podgroup.Executing, Started: at}
	l := u.logs[c.Name]
	l.last, l.now = l.now, []Line{{at, "container " + c.Name + " started"}}
}

func (u *Unit) restart(c *podgroup.Container, code int32, at time.Time) {
	c.Last = terminated(code, c.Now.Started, at)
	c.Restarts++
	u.start(c, at)
}

// end ends all containers.
func (u *Unit) end(phase podgroup.Phase, code int32, at time.Time) {
	u.Phase, u.Ended = phase, at
	for i := range u.Containers {
		if c := &u.Containers[i]; c.Now.State == podgroup.Executing {
			c.Now = terminated(code, c.Now.Started, at)
		}
	}
}

func terminated(code int32, started, finished time.Time) podgroup.Run {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return podgroup.Run{State: podgroup.Terminated, ExitCode: code, Reason: reason, Started: started, Finished: finished}
}

func (u *Unit) event(kind, reason, message string, at time.Time) {
	u.Events = append(u.Events, podgroup.Event{Type: kind, Reason: reason, Message: message, At: at})
}

// ofPod calls f with the unit of a pod.
func (w *World) ofPod(pod string, f func(*Unit) error) error {
	w.mu.Lock()
	w.progress()
	id := ""
	for _, u := range w.units {
		if u.Tags[podgroup.TagPodName] == pod && id == "" {
			id = u.ID
		}
	}
	w.mu.Unlock()
	if err := w.change(id, f); err != nil {
		return fmt.Errorf("pod %s: %w", pod, err)
	}
	return nil
}

// Exit ends a container of a pod; the restart policy decides what follows.
func (w *World) Exit(pod, container string, code int32) error {
	return w.ofPod(pod, func(u *Unit) error {
		c := u.Container(container)
		if c == nil || c.Now.State != podgroup.Executing {
			return fmt.Errorf("container %s does not run", container)
		}
		if policy := u.Spec.RestartPolicy; policy == "Always" || policy == "OnFailure" && code != 0 {
			u.restart(c, code, w.now())
			return nil
		}
		c.Now = terminated(code, c.Now.Started, w.now())
		phase := podgroup.Succeeded
		for i := range u.Containers {
			switch now := &u.Containers[i].Now; {
			case now.State == podgroup.Executing:
				return nil
			case now.ExitCode != 0:
				phase = podgroup.Failed
			}
		}
		u.end(phase, 0, w.now())
		return nil
	})
}

// FailUnit ends a unit before its containers have run, with a reason.
func (w *World) FailUnit(pod, reason, message string) error {
	return w.ofPod(pod, func(u *Unit) error {
		u.event("Warning", reason, message, w.now())
		u.Phase, u.Ended = podgroup.Failed, w.now()
		return nil
	})
}

// Print has a container of a pod print a line.
func (w *World) Print(pod, container, text string) error {
	return w.ofPod(pod, func(u *Unit) error {
		l := u.logs[container]
		if l == nil {
			return fmt.Errorf("there is no container %s", container)
		}
		l.now = append(l.now, Line{w.now(), text})
		return nil
	})
}

// Change changes the unit of a pod as a test wants.
func (w *World) Change(pod string, f func(*Unit)) error {
	return w.ofPod(pod, func(u *Unit) error {
		f(u)
		return nil
	})
}

// Remove removes the unit of a pod, as others do in the service's console.
func (w *World) Remove(pod string) error {
	return w.ofPod(pod, w.kill)
}

// OfPod returns the unit of a pod.
func (w *World) OfPod(pod string) (found Unit, err error) {
	err = w.ofPod(pod, func(u *Unit) error {
		found = u.clone()
		return nil
	})
	return found, err
}

// Duplicate adds a second unit of a pod, as if a creation that was refused had happened
// all the same.
func (w *World) Duplicate(pod string) (id string, err error) {
	var spec Spec
	err = w.ofPod(pod, func(u *Unit) error {
		spec = u.Spec
		return nil
	})
	if err != nil {
		return "", err
	}
	spec.Token, spec.ID = "", ""
	u, err := w.Create(spec)
	return u.ID, err
}
