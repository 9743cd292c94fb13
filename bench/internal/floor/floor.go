// Package floor is the least that an agent can do for the pods of its nodes: one
// watch, one patch a pod to say that it runs, one request to remove it once it
// is to go, and a lease a node. What a node agent costs is measured against it.
package floor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/follow"
)

// Agent is the floor. It retries nothing and remembers nothing: it is no agent
// to run pods with.
type Agent struct {
	Client kubernetes.Interface
	// Node is the name of the node or, of several, the beginning of their names.
	Node string
	// Nodes is how many there are; all pods of the cluster are on them then.
	Nodes   int
	Workers int // requests at a time
}

// Run registers the nodes and serves their pods until ctx ends.
func (a Agent) Run(ctx context.Context) error {
	leases, err := a.register(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan *corev1.Pod, 20_000)
	group.Go(func() error { return a.watch(ctx, work) })
	for range a.Workers {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case pod := <-work:
					if err := a.handle(ctx, pod); err != nil {
						return err
					}
				}
			}
		})
	}
	group.Go(func() error { return a.renew(ctx, leases) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watch hands out each pod when it is new, and when it is to go.
func (a Agent) watch(ctx context.Context, work chan<- *corev1.Pod) error {
	pods := a.Client.CoreV1().Pods(metav1.NamespaceAll)
	selector := fields.Everything().String()
	if a.Nodes == 1 {
		selector = fields.OneTermEqualSelector("spec.nodeName", a.Node).String()
	}
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: "0"})
	if err != nil {
		return err
	}
	doomed := map[types.UID]bool{}
	return follow.Watch(ctx, pods, metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.ResourceVersion}, func(event watch.Event) bool {
		pod, ok := event.Object.(*corev1.Pod)
		switch {
		case !ok:
		case event.Type == watch.Deleted:
			delete(doomed, pod.UID)
		case event.Type == watch.Added, pod.DeletionTimestamp != nil && !doomed[pod.UID]:
			if pod.DeletionTimestamp != nil {
				doomed[pod.UID] = true
			}
			work <- pod
		}
		return false
	})
}

// handle makes the one request that the pod needs.
func (a Agent) handle(ctx context.Context, pod *corev1.Pod) error {
	pods := a.Client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)),
			Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another one has its name
			return fmt.Errorf("delete pod %s: %w", pod.Name, err)
		}
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": runningStatus(pod, metav1.Now())})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// runningStatus is what a kubelet says of a pod that runs.
func runningStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "127.0.0.1", HostIPs: []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, StartTime: &now,
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "floor://" + string(pod.UID), Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}
