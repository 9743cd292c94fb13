package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// watchNodes follows the remote nodes and the pods on them, of whoever they are, until
// ctx ends, and returns what tells their capacity. They are watched since there may be
// many, on a way that is slow.
func (p *Provider) watchNodes(ctx context.Context) (look func(context.Context) (corev1.ResourceList, error)) {
	client := p.remote.CoreV1()
	chosen := func(options metav1.ListOptions) metav1.ListOptions {
		options.LabelSelector = p.cfg.Capacity.NodeSelector
		return options
	}
	nodes := p.follow(ctx, "remote nodes", &corev1.Node{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.Nodes().List(ctx, chosen(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Nodes().Watch(ctx, chosen(options))
		},
	})
	active := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
		return options
	}
	pods := p.follow(ctx, "pods of the remote nodes", &corev1.Pod{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.Pods(metav1.NamespaceAll).List(ctx, active(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Pods(metav1.NamespaceAll).Watch(ctx, active(options))
		},
	})
	return func(ctx context.Context) (corev1.ResourceList, error) {
		if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
			return nil, ctx.Err()
		}
		return sumNodes(stored[corev1.Node](nodes), stored[corev1.Pod](pods), p.translate.Home, &p.cfg.Scheduling), nil
	}
}

// follow runs an informer of what decides about the capacity until ctx ends.
func (p *Provider) follow(ctx context.Context, what string, of runtime.Object, lw *cache.ListWatch) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(listwatch.Patient(what, lw), p.remote), of, 0, cache.Indexers{})
	_ = informer.SetTransform(onlyResources) // fails once it runs, which it does not
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

// onlyResources drops what the capacity does not depend on of a node or a pod, of
// which there may be very many.
func onlyResources(obj any) (any, error) {
	switch object := obj.(type) {
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: onlyIdentity(&object.ObjectMeta),
			Spec:       corev1.NodeSpec{Unschedulable: object.Spec.Unschedulable, Taints: object.Spec.Taints},
			Status:     corev1.NodeStatus{Allocatable: object.Status.Allocatable, Conditions: object.Status.Conditions},
		}, nil
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: onlyIdentity(&object.ObjectMeta),
			Spec: corev1.PodSpec{
				NodeName: object.Spec.NodeName, Overhead: object.Spec.Overhead, Resources: object.Spec.Resources,
				InitContainers: onlyRequests(object.Spec.InitContainers), Containers: onlyRequests(object.Spec.Containers),
			},
		}, nil
	}
	return obj, nil
}

func onlyIdentity(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion, Labels: meta.Labels}
}

func onlyRequests(containers []corev1.Container) []corev1.Container {
	only := make([]corev1.Container, len(containers))
	for i := range containers {
		only[i] = corev1.Container{RestartPolicy: containers[i].RestartPolicy, Resources: containers[i].Resources}
	}
	return only
}
