package aci

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// tagCreated is the tag with the time of the group's creation, which Azure does not show.
const tagCreated = "GroupCreationTimestamp"

// tags returns the tags of a group. Those of the provider that this one replaces have an empty
// name of the cluster, which the UID of the pod replaces, and times in Go's form.
func (b *backend) tags(g *armcontainerinstance.ContainerGroup) map[string]string {
	tags := map[string]string{}
	for key, value := range g.Tags {
		tags[key] = valueOf(value)
	}
	if cluster, ok := tags[podgroup.TagClusterName]; (!ok || cluster == "") && tags[podgroup.TagUID] != "" && tags[podgroup.TagClusterUID] == "" {
		tags[podgroup.TagClusterName] = b.cfg.ClusterName
	}
	if at, err := time.Parse("2006-01-02 15:04:05 -0700 MST", tags[podgroup.TagCreationTimestamp]); err == nil {
		tags[podgroup.TagCreationTimestamp] = at.UTC().Format(time.RFC3339)
	}
	return tags
}

// unit translates a group of a list, and its state, if it was read.
func (b *backend) unit(listed *armcontainerinstance.ContainerGroup, v *view) podgroup.Unit {
	u := podgroup.Unit{ID: valueOf(listed.Name), Tags: b.tags(listed)}
	for _, name := range []string{podgroup.TagCreationTimestamp, tagCreated} {
		if at, err := time.Parse(time.RFC3339, u.Tags[name]); err == nil {
			u.Created = at
		}
	}
	state, p := provisioningState(listed), listed.Properties
	instance := ""
	if v != nil && v.group != nil {
		p, u.Unknown = v.group.Properties, v.unread
		if p.InstanceView != nil {
			instance = valueOf(p.InstanceView.State)
			u.Events = events("", p.InstanceView.Events)
		}
	}
	if p.IPAddress != nil && valueOf(p.IPAddress.IP) != "" {
		u.IPs = []string{*p.IPAddress.IP}
	}
	stopped := instance == "Stopped" || instance == "Terminated"
	var waits podgroup.Run // of containers of a group that Azure does not run
	restarts := valueOf(p.RestartPolicy) != armcontainerinstance.ContainerGroupRestartPolicyNever
	always := restarts && valueOf(p.RestartPolicy) != armcontainerinstance.ContainerGroupRestartPolicyOnFailure // the default
	switch {
	case state == "Deleting":
		u.Phase = podgroup.Stopping
	case stopped && always:
		u.Phase = podgroup.Running // it may be started there, too
		waits = podgroup.Run{Reason: "Stopped", Message: "The container group was stopped in Azure, and does not run until it is started there"}
	case stopped && haveCompleted(p):
		u.Phase = podgroup.Succeeded
	case stopped:
		u.Phase, u.Failure = podgroup.Failed, &podspec.Failure{Reason: "Stopped", Message: "The container group was stopped in Azure"}
	case instance == "Succeeded" && !always:
		u.Phase = podgroup.Succeeded
	case instance == "Failed" && !restarts: // with another policy the group goes on
		u.Phase = podgroup.Failed
	case instance != "" && instance != "Pending", state == "Unhealthy", state == "Repairing":
		u.Phase = podgroup.Running
	}
	if unprovisioned := !u.Unknown && u.Phase == podgroup.Pending && (state == "Failed" || state == "Canceled"); unprovisioned {
		// Azure goes on trying until the group is deleted: the pod may run yet, and has not failed.
		waits = podgroup.Run{Reason: "Provisioning" + state, Message: cmp.Or(lastWarning(p, u.Events), "Azure gives no reason")}
		u.Events = append(u.Events, podgroup.Event{Type: corev1.EventTypeWarning, Reason: waits.Reason, At: u.Created,
			Message: "Azure could not provision container group " + u.ID + ", and goes on trying until the pod is deleted, if it does: its events and the activity log of the resource group say why"})
	} else if waits.Reason != "" {
		u.Events = append(u.Events, podgroup.Event{Type: corev1.EventTypeWarning, Reason: waits.Reason, At: u.Created, Message: waits.Message + "; to have the pod run elsewhere, delete it"})
	}
	for _, c := range p.InitContainers {
		if c.Properties != nil && c.Properties.InstanceView != nil {
			i := c.Properties.InstanceView
			u.Containers = append(u.Containers, container(&u, c.Name, c.Properties.Image, i.CurrentState, i.PreviousState, i.RestartCount, i.Events, restarts, false))
		} else {
			u.Containers = append(u.Containers, podgroup.Container{Name: valueOf(c.Name), Now: podgroup.Run{Reason: "PodInitializing"}})
		}
	}
	for _, c := range p.Containers {
		if c.Properties == nil {
			continue
		}
		i := c.Properties.InstanceView
		if i == nil {
			i = &armcontainerinstance.ContainerPropertiesInstanceView{}
		}
		one := container(&u, c.Name, c.Properties.Image, i.CurrentState, i.PreviousState, i.RestartCount, i.Events, restarts, always)
		if waits.Reason != "" && one.Now.State == podgroup.Waiting {
			if one.Now.Reason == "" || stopped {
				one.Now.Reason = waits.Reason
			}
			one.Now.Message = waits.Message
		}
		if probe := c.Properties.ReadinessProbe; probe != nil && i.CurrentState != nil {
			one.Ready = new(isReady(probe, i.Events, one.Now.Started, v.at))
		}
		u.Containers = append(u.Containers, one)
	}
	if v != nil && !v.again.IsZero() && (stopped || !u.Over()) {
		b.interrupt(&u, v)
	}
	if u.Over() {
		for i := range u.Containers {
			if at := u.Containers[i].Now.Finished; at.After(u.Ended) {
				u.Ended = at
			}
		}
	}
	return u
}

// haveCompleted reports whether all containers of a group have ended without a failure.
func haveCompleted(p *armcontainerinstance.ContainerGroupPropertiesProperties) bool {
	return !slices.ContainsFunc(p.Containers, func(c *armcontainerinstance.Container) bool {
		if c.Properties == nil || c.Properties.InstanceView == nil {
			return true
		}
		r := run(c.Properties.InstanceView.CurrentState)
		return r.State != podgroup.Terminated || r.ExitCode != 0
	})
}

// container translates what Azure says of a container, and adds its events to the unit's.
func container(u *podgroup.Unit, name, image *string, now, last *armcontainerinstance.ContainerState, restartCount *int32, of []*armcontainerinstance.Event, restarts, always bool) podgroup.Container {
	c := podgroup.Container{Name: valueOf(name), Image: valueOf(image), Now: run(now), Last: run(last), Restarts: valueOf(restartCount)}
	u.Events = append(u.Events, events("container "+c.Name+": ", of)...)
	if c.Last.State != podgroup.Terminated {
		c.Last = podgroup.Run{}
	}
	if c.Now.State == podgroup.Terminated && !u.Over() && (always || restarts && c.Now.ExitCode != 0) {
		c.Now, c.Last = podgroup.Run{Reason: "CrashLoopBackOff"}, c.Now // Azure starts it again
	}
	return c
}

// run translates the state of a container.
func run(s *armcontainerinstance.ContainerState) podgroup.Run {
	if s == nil {
		return podgroup.Run{}
	}
	r := podgroup.Run{Started: valueOf(s.StartTime)}
	detail := valueOf(s.DetailStatus)
	switch state := valueOf(s.State); state {
	case "Running":
		r.State = podgroup.Executing
	case "Terminated", "Succeeded", "Failed", "Canceled", "Stopped":
		r.State, r.Finished = podgroup.Terminated, valueOf(s.FinishTime)
		switch {
		case s.ExitCode != nil:
			r.ExitCode = *s.ExitCode
		case state != "Succeeded" && detail != "Completed":
			r.ExitCode, r.Reason = podspec.ExitUnknown, podspec.ReasonContainerStatusUnknown
		}
		r.Reason = cmp.Or(r.Reason, reason(detail))
	default:
		r = podgroup.Run{Reason: reason(detail)} // such as CrashLoopBackOff
	}
	if r.Reason == "" {
		r.Message = detail
	}
	return r
}

// reason returns a detail that is a reason, such as Completed, OOMKilled or CrashLoopBackOff:
// it may be a sentence.
func reason(detail string) string {
	if strings.ContainsAny(detail, " .:") {
		return ""
	}
	return detail
}

// isReady guesses whether a container is ready when it was looked at: Azure shows the failures
// of probes as events, but not what has become of them.
func isReady(p *armcontainerinstance.ContainerProbe, of []*armcontainerinstance.Event, started, at time.Time) bool {
	seconds := func(n *int32, otherwise int32) time.Duration {
		return time.Duration(cmp.Or(valueOf(n), otherwise)) * time.Second
	}
	period := seconds(p.PeriodSeconds, 10)
	if at.Before(started.Add(seconds(p.InitialDelaySeconds, 0) + period)) {
		return false // it has hardly been probed
	}
	return !slices.ContainsFunc(of, func(e *armcontainerinstance.Event) bool {
		return strings.Contains(valueOf(e.Message), "Readiness probe failed") && !valueOf(e.LastTimestamp).Before(started) && at.Sub(valueOf(e.LastTimestamp)) < 2*period
	})
}

// events translates events.
func events(prefix string, list []*armcontainerinstance.Event) (all []podgroup.Event) {
	for _, e := range list {
		kind := corev1.EventTypeNormal
		if valueOf(e.Type) == corev1.EventTypeWarning {
			kind = corev1.EventTypeWarning
		}
		all = append(all, podgroup.Event{Type: kind, Reason: valueOf(e.Name), Message: prefix + valueOf(e.Message), At: valueOf(e.LastTimestamp)})
	}
	return all
}

// lastWarning returns the text of the newest warning of a group or its containers.
func lastWarning(p *armcontainerinstance.ContainerGroupPropertiesProperties, of []podgroup.Event) string {
	u := podgroup.Unit{Events: slices.Clone(of)}
	for _, c := range p.Containers {
		if c.Properties != nil && c.Properties.InstanceView != nil {
			u.Events = append(u.Events, events("container "+valueOf(c.Name)+": ", c.Properties.InstanceView.Events)...)
		}
	}
	return u.LastWarning()
}

// pointers returns the tags as the SDK wants them.
func pointers(tags map[string]string) map[string]*string {
	all := make(map[string]*string, len(tags)+1)
	for key, value := range maps.All(tags) {
		all[key] = &value
	}
	return all
}
