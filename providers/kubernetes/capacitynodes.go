package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// watchNodes starts informers of the remote nodes and of all pods on them, until ctx
// ends, and returns a function that computes the capacity from their caches. There may
// be too many to list them each time.
func (p *Provider) watchNodes(ctx context.Context) (read func(context.Context) (corev1.ResourceList, error)) {
	client := p.remote.CoreV1()
	nodes := p.startInformer(ctx, "remote nodes", &corev1.Node{}, listwatch.Of(client.Nodes(), func(options *metav1.ListOptions) {
		options.LabelSelector = p.cfg.Capacity.NodeSelector
	}))
	pods := p.startInformer(ctx, "pods of the remote nodes", &corev1.Pod{}, listwatch.Of(client.Pods(metav1.NamespaceAll), func(options *metav1.ListOptions) {
		options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
	}))
	return func(ctx context.Context) (corev1.ResourceList, error) {
		if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
			return nil, ctx.Err()
		}
		return sumNodes(stored[corev1.Node](nodes), stored[corev1.Pod](pods), p.translate.Home, &p.cfg.Scheduling), nil
	}
}

// startInformer runs an informer until ctx ends. Its cache has only what the capacity
// depends on.
func (p *Provider) startInformer(ctx context.Context, what string, of runtime.Object, lw *cache.ListWatch) cache.SharedIndexInformer {
	informer := listwatch.Informer(what, p.remote, lw, of, cache.Indexers{})
	_ = informer.SetTransform(trimResources) // fails only if the informer is running
	p.running.Go(func() { informer.RunWithContext(ctx) })
	return informer
}

func stored[T any](informer cache.SharedIndexInformer) (all []*T) {
	for _, obj := range informer.GetStore().List() {
		if object, ok := any(obj).(*T); ok {
			all = append(all, object)
		}
	}
	return all
}

// trimResources removes the fields of a node or pod that the capacity does not depend
// on, since there may be very many.
func trimResources(obj any) (any, error) {
	switch object := obj.(type) {
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: trimMetadata(&object.ObjectMeta),
			Spec:       corev1.NodeSpec{Unschedulable: object.Spec.Unschedulable, Taints: object.Spec.Taints},
			Status:     corev1.NodeStatus{Allocatable: object.Status.Allocatable, Conditions: object.Status.Conditions},
		}, nil
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: trimMetadata(&object.ObjectMeta),
			Spec: corev1.PodSpec{
				NodeName: object.Spec.NodeName, Overhead: object.Spec.Overhead, Resources: object.Spec.Resources,
				InitContainers: trimContainers(object.Spec.InitContainers), Containers: trimContainers(object.Spec.Containers),
			},
		}, nil
	}
	return obj, nil
}

func trimMetadata(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion, Labels: meta.Labels}
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	only := make([]corev1.Container, len(containers))
	for i := range containers {
		only[i] = corev1.Container{RestartPolicy: containers[i].RestartPolicy, Resources: containers[i].Resources}
	}
	return only
}
