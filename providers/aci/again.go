package aci

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

const (
	// scheme is that of the IDs of containers.
	scheme = "aci"
	// againAfter is how much later than its pod's status says a container has started that runs
	// again: the status has whole seconds.
	againAfter = time.Minute
	// stopRetry is when to stop a group again that goes on.
	stopRetry = 30 * time.Second
	// reasonMoved is the reason of a pod that was not to run again.
	reasonMoved = "NodeLost"
	// actionStop is the call that stops a group.
	actionStop podgroup.Action = "stop"
)

// stopAgain stops groups that are to run once, and run again, or are about to: Azure moves
// groups whose machine fails, and starts Spot groups again that it has evicted, regardless of
// their restart policy. Until that is accepted the pod's status stays as it is.
func (b *backend) stopAgain(ctx context.Context, groups []*armcontainerinstance.ContainerGroup) {
	var due []string
	b.mu.Lock()
	for _, g := range groups {
		v := b.views[*g.Name]
		if v == nil || v.group == nil || v.unread || v.leaving {
			continue
		}
		if v.again.IsZero() && b.runsAgain(g, v) {
			v.again = time.Now()
		}
		if v.mustStop() && time.Since(v.tried) >= stopRetry {
			v.tried = time.Now()
			due = append(due, *g.Name)
		}
	}
	b.mu.Unlock()
	var work errgroup.Group
	work.SetLimit(parallelViews)
	for _, name := range due {
		work.Go(func() error {
			if err := b.stop(ctx, name); err != nil {
				log.G(ctx).WithField("group", name).WithError(err).Warn("Cannot stop a container group that is to run once, and that Azure runs again; trying again")
				return nil
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if v := b.views[name]; v != nil {
				v.stopped = true
			}
			return nil
		})
	}
	_ = work.Wait() // its functions return none
}

// stop stops a group, which keeps its logs. One that is gone has stopped.
func (b *backend) stop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := b.budget.Do(ctx, actionStop, func() error {
		_, err := b.groups.Stop(ctx, b.cfg.ResourceGroup, name, nil)
		return classify(actionStop, err)
	})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// mustStop reports whether a group that is not to run again may.
func (v *view) mustStop() bool {
	return !v.again.IsZero() && !slices.Contains([]string{"Stopped", "Terminated", "Succeeded", "Failed"}, instanceState(v.group.Properties))
}

func instanceState(p *armcontainerinstance.ContainerGroupPropertiesProperties) string {
	if p.InstanceView == nil {
		return ""
	}
	return valueOf(p.InstanceView.State)
}

// runsAgain reports whether a group that is to run once has run, by its pod's status, and waits
// to run again, or does. One that has come to an end with a result has that. Groups whose
// pods this cluster does not have are others' affair. The caller holds b.mu.
func (b *backend) runsAgain(listed *armcontainerinstance.ContainerGroup, v *view) bool {
	p := v.group.Properties
	state, instance := provisioningState(listed), instanceState(p)
	if valueOf(p.RestartPolicy) != armcontainerinstance.ContainerGroupRestartPolicyNever || state == "Deleting" || instance == "Succeeded" || instance == "Failed" {
		return false
	}
	pod := b.podOf(b.tags(listed))
	if pod == nil {
		return false
	}
	runs := runsOf(pod, *listed.Name)
	stopped := instance == "Stopped" || instance == "Terminated"
	switch {
	case len(runs) == 0:
		return false
	case pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == reasonMoved: // as was seen before
		return true
	case stopped:
	case state == "Unhealthy", state == "Repairing":
		return true
	}
	again := func(name *string, now *armcontainerinstance.ContainerState, restarts *int32, pending bool) bool {
		before, hasRun := runs[valueOf(name)]
		return hasRun && (pending && now == nil || valueOf(restarts) > before.Restarts || now != nil &&
			(valueOf(now.StartTime).Sub(before.Now.Started) > againAfter || !stopped && valueOf(now.State) == "Waiting"))
	}
	return slices.ContainsFunc(p.InitContainers, func(c *armcontainerinstance.InitContainerDefinition) bool { // they run while the group is pending
		return c.Properties != nil && c.Properties.InstanceView != nil && again(c.Name, c.Properties.InstanceView.CurrentState, c.Properties.InstanceView.RestartCount, false)
	}) || slices.ContainsFunc(p.Containers, func(c *armcontainerinstance.Container) bool {
		i := &armcontainerinstance.ContainerPropertiesInstanceView{}
		if c.Properties != nil && c.Properties.InstanceView != nil {
			i = c.Properties.InstanceView
		}
		return again(c.Name, i.CurrentState, i.RestartCount, instance == "Pending")
	})
}

// hasRun reports whether a container of a group has started, by its pod's status.
func (b *backend) hasRun(g *armcontainerinstance.ContainerGroup) bool {
	pod := b.podOf(b.tags(g))
	return pod != nil && len(runsOf(pod, *g.Name)) > 0
}

// podOf returns the pod of a group with these tags; nil if this cluster does not have it.
func (b *backend) podOf(tags map[string]string) *corev1.Pod {
	if b.pods == nil {
		return nil
	}
	pod, err := b.pods.Pods(tags[podgroup.TagNamespace]).Get(tags[podgroup.TagPodName])
	if err != nil || string(pod.UID) != tags[podgroup.TagUID] {
		return nil
	}
	return pod
}

// runsOf returns the containers of a pod that have started in a group, by the pod's status,
// as ones whose end nobody saw if they ran.
func runsOf(pod *corev1.Pod, group string) map[string]podgroup.Container {
	runs := map[string]podgroup.Container{}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		run := podgroup.RunOf(&s.State)
		if run.State == podgroup.Executing {
			run = podgroup.Run{State: podgroup.Terminated, ExitCode: podspec.ExitUnknown, Reason: podspec.ReasonContainerStatusUnknown, Message: podspec.MessageContainerStatusUnknown, Started: run.Started}
		}
		if run.State == podgroup.Terminated && !run.Started.IsZero() && strings.HasPrefix(s.ContainerID, scheme+"://"+group+"/") {
			runs[s.Name] = podgroup.Container{Name: s.Name, ImageID: s.ImageID, Now: run, Restarts: s.RestartCount}
		}
	}
	return runs
}

// interrupt makes the unit of a group that runs again one that has failed, with the containers
// of the run that was to be the only one; or unknown while it may still run.
func (b *backend) interrupt(u *podgroup.Unit, v *view) {
	if u.Unknown = !v.stopped && v.mustStop(); u.Unknown {
		return
	}
	u.Phase, u.Ended = podgroup.Failed, v.again
	u.Failure = &podspec.Failure{Reason: reasonMoved, Message: "Azure has taken the machine of the container group away, or it has failed: the pod is to run once, and does not run again", Disrupted: true}
	pod := b.podOf(u.Tags)
	if pod == nil {
		return
	}
	runs := runsOf(pod, u.ID)
	for i, c := range u.Containers {
		if before, ok := runs[c.Name]; ok {
			if before.Now.Finished.IsZero() {
				before.Now.Finished = v.again
			}
			u.Containers[i] = before
		} else {
			u.Containers[i] = podgroup.Container{Name: c.Name, Image: c.Image}
		}
	}
}
