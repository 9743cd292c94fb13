package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Provider runs pods as tasks of a service.
type Provider struct {
	service *Service
	node    string
	hostIPs func() []string
	known   corev1listers.PodLister // the pods of the node
}

var _ node.PodLifecycleHandler = (*Provider)(nil)

// CreatePod starts a pod. Variables of its containers have their values, but for those that only
// the service could know, such as of status.podIP: they have ValueFrom still.
func (p *Provider) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.InitContainers) > 0 {
		return errdefs.AsPermanent(errors.New("ProviderNotSupported: acme has no init containers"))
	}
	task := Task{ID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Node: p.node}
	for _, c := range pod.Spec.Containers {
		container := TaskContainer{Name: c.Name, Image: c.Image}
		for _, v := range c.Env {
			if v.ValueFrom != nil {
				return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: container %s: acme has no value for variable %s", c.Name, v.Name))
			}
			container.Variables = append(container.Variables, v.Name+"="+v.Value)
		}
		task.Containers = append(task.Containers, container)
	}
	return classify(p.service.Run(ctx, task))
}

// classify gives an error of the service the class that says what to do about it.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNoTask):
		return errdefs.AsNotFound(err)
	case errors.Is(err, ErrSize): // no retry helps
		return errdefs.AsPermanent(err)
	case errors.Is(err, ErrQuota): // not before somebody has freed some of it
		return errdefs.AsRetryAfter(err, time.Minute)
	}
	return errdefs.AsUnavailable(err)
}

// UpdatePod takes over a change of a pod. Labels and annotations are not kept in the service, and
// it cannot change what runs.
func (p *Provider) UpdatePod(context.Context, *corev1.Pod) error { return nil }

// DeletePod asks for the end of a pod. It does not wait for it.
func (p *Provider) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	return classify(p.service.Stop(ctx, string(pod.UID), time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second))
}

// GetPods returns the pods of this node, and of no other.
func (p *Provider) GetPods(ctx context.Context) (pods []*corev1.Pod, _ error) {
	tasks, err := p.service.List(ctx, p.node)
	if err != nil {
		return nil, classify(err)
	}
	for _, t := range tasks {
		pods = append(pods, p.pod(t))
	}
	return pods, nil
}

// GetPod returns a pod.
func (p *Provider) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pods, err := p.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, nil
		}
	}
	return nil, errdefs.NotFoundf("acme has no task for pod %s/%s", namespace, name)
}

// GetPodStatus returns the status of a pod.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// pod is a task as a pod. What the service does not keep is the API's, if that has the pod still.
func (p *Provider) pod(t Task) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name, UID: types.UID(t.ID)}}
	seen := podspec.Observation{
		Networked: true, PodIPs: []string{t.Address}, HostIPs: p.hostIPs(),
		StartTime: metav1.NewTime(t.Started), Ended: !t.Ended.IsZero(), Statuses: map[string]corev1.ContainerStatus{},
	}
	for _, c := range t.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
		seen.Statuses[c.Name] = containerStatus(t, c)
	}
	if known, err := p.known.Pods(t.Namespace).Get(t.Name); err == nil && known.UID == pod.UID {
		pod = known.DeepCopy()
	}
	pod.Status = podspec.Status(pod, seen, &pod.Status, metav1.Now())
	return pod
}

func containerStatus(t Task, c TaskContainer) corev1.ContainerStatus {
	runs := t.Ended.IsZero()
	status := corev1.ContainerStatus{
		Name: c.Name, ContainerID: "acme://" + t.ID + "-" + c.Name, Image: c.Image, ImageID: c.Image, Ready: runs, Started: &runs,
	}
	if runs {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t.Started)}
	} else {
		reason := "Completed"
		if t.ExitCode != 0 {
			reason = "Error"
		}
		status.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: int32(t.ExitCode), Reason: reason, StartedAt: metav1.NewTime(t.Started), FinishedAt: metav1.NewTime(t.Ended),
		}
	}
	return status
}
