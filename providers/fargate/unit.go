package fargate

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// The states of tasks and containers that count. Those before RUNNING are stages of a start.
const (
	statusRunning = "RUNNING"
	statusStopped = "STOPPED"
)

// taskData is what is found again of a task: the ARN of its definition, and whether it was
// created for commands.
type taskData struct {
	definition string
	commands   bool
}

// unit translates what ECS says of a task.
func (b *backend) unit(t *types.Task) podgroup.Unit {
	u := podgroup.Unit{
		ID: aws.ToString(t.TaskArn), Tags: map[string]string{}, Created: aws.ToTime(t.CreatedAt),
		Data: taskData{aws.ToString(t.TaskDefinitionArn), t.EnableExecuteCommand},
	}
	for _, tag := range t.Tags {
		u.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	if len(t.Tags) == 0 {
		u.Tags = b.identityOf(t)
	}
	for _, a := range t.Attachments {
		for _, d := range a.Details {
			if name := aws.ToString(d.Name); name == "privateIPv4Address" || name == "privateIPv6Address" {
				u.IPs = append(u.IPs, aws.ToString(d.Value))
			}
		}
	}
	good, starting := len(t.Containers) > 0, true
	for i := range t.Containers {
		c := container(t, &t.Containers[i])
		good = good && (c.Now.State == podgroup.Terminated && c.Now.ExitCode == 0)
		starting = starting && c.Now.State == podgroup.Waiting
		u.Containers = append(u.Containers, c)
	}
	why := failure(t)
	switch last := aws.ToString(t.LastStatus); {
	case last == statusStopped && good && (why == nil || why.Reason == reasonStopped): // else it was ended, and has answered the signal with 0
		u.Phase = podgroup.Succeeded
	case last == statusStopped:
		u.Phase, u.Failure = podgroup.Failed, why
	case aws.ToString(t.DesiredStatus) == statusStopped && strings.Contains(aws.ToString(t.StoppedReason), stopReason):
		u.Phase = podgroup.Stopping
	case last == statusRunning, t.StartedAt != nil, !starting:
		u.Phase = podgroup.Running
	}
	if u.Over() {
		u.Ended = aws.ToTime(t.StoppedAt)
	}
	return u
}

// olderFamily begins the families of the provider that this one replaces. Cluster, namespace
// and name of the pod follow, with underscores, which the last two do not have.
const olderFamily = "vk-podspec_"

// identityOf returns the identity of a task without tags, if it is of a pod that this node has:
// the pod's UID has started it. Tasks of the provider that this one replaces have none, and
// StopTask deletes them.
func (b *backend) identityOf(t *types.Task) map[string]string {
	family := familyOf(aws.ToString(t.TaskDefinitionArn))
	if b.pods == nil || !strings.HasPrefix(family, olderFamily+b.cfg.ClusterName+"_") && !strings.HasPrefix(family, nodePrefix(b.node)) {
		return nil
	}
	pods, err := b.pods.List(labels.Everything())
	i := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return string(pod.UID) == aws.ToString(t.StartedBy) })
	if err != nil || i < 0 {
		return nil
	}
	return map[string]string{
		podgroup.TagClusterName: b.cfg.ClusterName, podgroup.TagNodeName: b.node,
		podgroup.TagNamespace: pods[i].Namespace, podgroup.TagPodName: pods[i].Name, podgroup.TagUID: string(pods[i].UID),
	}
}

// reasonStopped is the reason of a task that has stopped without having been ended by somebody.
const reasonStopped = "TaskStopped"

// failure returns why ECS stopped a task, if its containers do not show it.
func failure(t *types.Task) *podspec.Failure {
	disrupted := []types.TaskStopCode{types.TaskStopCodeSpotInterruption, types.TaskStopCodeTerminationNotice, types.TaskStopCodeInfrastructureHealth, types.TaskStopCodeUserInitiated}
	text := aws.ToString(t.StoppedReason)
	switch {
	case strings.Contains(text, sickReason):
		return &podspec.Failure{Reason: "Unhealthy", Message: text}
	case strings.Contains(text, initReason):
		return &podspec.Failure{Reason: "InitContainerFailed", Message: text}
	case t.StopCode == types.TaskStopCodeEssentialContainerExited:
		return nil
	case slices.Contains(disrupted, t.StopCode):
		return &podspec.Failure{Reason: string(t.StopCode), Message: text, Disrupted: true}
	}
	return &podspec.Failure{Reason: reasonStopped, Message: strings.TrimPrefix(string(t.StopCode)+": "+text, ": ")}
}

// container translates what ECS says of a container. Its own times are those of the task.
func container(t *types.Task, c *types.Container) podgroup.Container {
	out := podgroup.Container{Name: aws.ToString(c.Name), Image: aws.ToString(c.Image)}
	if digest := aws.ToString(c.ImageDigest); digest != "" {
		out.ImageID = out.Image + "@" + digest
	}
	switch status := aws.ToString(c.LastStatus); {
	case status == statusRunning:
		out.Now = podgroup.Run{State: podgroup.Executing, Started: aws.ToTime(t.StartedAt)}
	case status == statusStopped && c.ExitCode != nil:
		out.Now = podgroup.Run{State: podgroup.Terminated, ExitCode: *c.ExitCode, Message: aws.ToString(c.Reason), Started: aws.ToTime(t.StartedAt), Finished: aws.ToTime(t.ExecutionStoppedAt)}
		if strings.HasPrefix(aws.ToString(c.Reason), "OutOfMemory") {
			out.Now.Reason = "OOMKilled"
		}
	case status == statusStopped && t.StartedAt != nil:
		out.Now = podgroup.Run{State: podgroup.Terminated, ExitCode: podspec.ExitUnknown, Reason: podspec.ReasonContainerStatusUnknown, Message: aws.ToString(c.Reason)}
	case status == statusStopped: // it never ran
		out.Now = podgroup.Run{Reason: "CreateContainerError", Message: aws.ToString(c.Reason)}
	}
	return out
}
