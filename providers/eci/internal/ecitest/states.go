package ecitest

import (
	"fmt"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
)

// progress makes all state changes that are due. The caller holds s.mu.
func (s *Server) progress() {
	now := s.now()
	for _, h := range s.groups {
		h.progress(now, s.step)
	}
	s.groups = slices.DeleteFunc(s.groups, func(h *groupState) bool {
		return !h.deleted.IsZero() && !now.Before(h.deleted.Add(s.step))
	})
}

func (h *groupState) progress(now time.Time, step time.Duration) {
	if h.group.Status == "Scheduling" && !now.Before(h.created.Add(step)) {
		h.group.Status = "Pending"
		h.group.IntranetIp = fmt.Sprintf("10.200.%d.%d", h.number/250%250, 1+h.number%250)
		h.event("Normal", "SuccessfulMountVolume", "the volumes are there", h.created.Add(step))
	}
	if h.group.Status == "Pending" && !now.Before(h.created.Add(2*step)) {
		h.run(h.created.Add(2 * step))
	}
	if limit := h.params.integer("ActiveDeadlineSeconds"); limit > 0 && h.group.Status == "Running" {
		if end := h.started.Add(time.Duration(limit) * time.Second); !now.Before(end) {
			h.end("Failed", 137, end)
		}
	}
}

// run starts the containers. Init containers have completed.
func (h *groupState) run(at time.Time) {
	h.started, h.group.Status = at, "Running"
	for i := range h.group.InitContainers {
		c := &h.group.InitContainers[i]
		c.Ready = true
		c.CurrentState = terminated(0, at, at)
		h.logs[c.Name] = append(h.logs[c.Name], line{at, "container " + c.Name + " started"})
	}
	for i := range h.group.Containers {
		h.start(&h.group.Containers[i], at)
	}
	h.event("Normal", "Started", "Started the containers", at)
}

func (h *groupState) start(c *eci.DescribeContainerGroupsContainer1, at time.Time) {
	c.Ready = true
	c.CurrentState = eci.DescribeContainerGroupsCurrentState2{State: "Running", StartTime: stamp(at)}
	h.containers[c.Name].previous = h.logs[c.Name]
	h.logs[c.Name] = []line{{at, "container " + c.Name + " started"}}
}

func (h *groupState) restart(c *eci.DescribeContainerGroupsContainer1, code int, at time.Time) {
	started, _ := time.Parse(time.RFC3339, c.CurrentState.StartTime)
	c.PreviousState = eci.DescribeContainerGroupsPreviousState2(terminated(code, started, at))
	c.RestartCount++
	h.start(c, at)
}

// end terminates all containers.
func (h *groupState) end(status string, code int, at time.Time) {
	h.group.Status = status
	for i := range h.group.Containers {
		if c := &h.group.Containers[i]; c.CurrentState.State == "Running" {
			c.Ready = false
			c.CurrentState = terminated(code, h.started, at)
		}
	}
	h.ended(at)
}

func (h *groupState) ended(at time.Time) {
	if h.group.Status == "Failed" {
		h.group.FailedTime = stamp(at)
	} else {
		h.group.SucceededTime = stamp(at)
	}
}

func terminated(code int, started, finished time.Time) eci.DescribeContainerGroupsCurrentState2 {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return eci.DescribeContainerGroupsCurrentState2{
		State: "Terminated", ExitCode: code, Reason: reason, StartTime: stamp(started), FinishTime: stamp(finished),
	}
}

func (h *groupState) event(kind, reason, message string, at time.Time) {
	h.group.Events = append(h.group.Events, eci.DescribeContainerGroupsEvent1{
		Type: kind, Reason: reason, Message: message, Name: h.group.ContainerGroupName, Count: 1,
		FirstTimestamp: stamp(at), LastTimestamp: stamp(at),
	})
}

// of calls f with the group whose tag PodName is pod. The caller must not hold s.mu.
func (s *Server) of(pod string, f func(h *groupState) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress()
	for _, h := range s.groups {
		if slices.Contains(h.group.Tags, eci.DescribeContainerGroupsLabel1{Key: "PodName", Value: pod}) {
			return f(h)
		}
	}
	return fmt.Errorf("there is no group of pod %q", pod)
}

// Exit terminates a container; the restart policy decides what follows.
func (s *Server) Exit(pod, container string, code int) error {
	return s.of(pod, func(h *groupState) error {
		c := h.find(container)
		if c == nil || c.CurrentState.State != "Running" {
			return fmt.Errorf("container %q of pod %q does not run", container, pod)
		}
		now := s.now()
		if policy := h.group.RestartPolicy; policy == "Always" || policy == "OnFailure" && code != 0 {
			h.restart(c, code, now)
			return nil
		}
		c.Ready = false
		c.CurrentState = terminated(code, h.started, now)
		failed := false
		for _, other := range h.group.Containers {
			if other.CurrentState.State == "Running" {
				return nil
			}
			failed = failed || other.CurrentState.ExitCode != 0
		}
		h.group.Status = "Succeeded"
		if failed {
			h.group.Status = "Failed"
		}
		h.ended(now)
		return nil
	})
}

// SetStatus sets the status of a group, such as ScheduleFailed, with a warning event.
func (s *Server) SetStatus(pod, status, reason, message string) error {
	return s.of(pod, func(h *groupState) error {
		h.group.Status = status
		h.event("Warning", reason, message, s.now())
		return nil
	})
}

// SetState sets the state of a container, such as Waiting for CrashLoopBackOff, without
// changing the group.
func (s *Server) SetState(pod, container, state, reason string) error {
	return s.of(pod, func(h *groupState) error {
		c := h.find(container)
		if c == nil {
			return fmt.Errorf("pod %q has no container %q", pod, container)
		}
		c.CurrentState = eci.DescribeContainerGroupsCurrentState2{State: state, Reason: reason, StartTime: c.CurrentState.StartTime}
		return nil
	})
}

// Params returns the parameters with which the group of a pod was created.
func (s *Server) Params(pod string) (found map[string]string, err error) {
	err = s.of(pod, func(h *groupState) error {
		found = h.params
		return nil
	})
	return found, err
}

// Untag removes a tag from all groups, as if they had been created without it.
func (s *Server) Untag(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.groups {
		h.group.Tags = slices.DeleteFunc(h.group.Tags, func(tag eci.DescribeContainerGroupsLabel1) bool { return tag.Key == key })
	}
}

// Remove removes the group of a pod, as others do in the console.
func (s *Server) Remove(pod string) error {
	return s.of(pod, func(h *groupState) error {
		s.groups = slices.DeleteFunc(s.groups, func(other *groupState) bool { return other == h })
		return nil
	})
}
