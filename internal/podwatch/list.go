package podwatch

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

const nodeNameField = "spec.nodeName"

// listWatch lists and watches the pods of the members. It is no listwatch.Of: others'
// pods are dropped as they arrive.
func (w *Watch) listWatch() *cache.ListWatch {
	pods := w.pods.Pods(w.namespace)
	selector := fields.OneTermNotEqualSelector(nodeNameField, "")
	if w.only != "" {
		selector = fields.OneTermEqualSelector(nodeNameField, w.only)
	}
	return listwatch.Steady(listwatch.Patient("pods", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector.String()
			if options.Continue == "" {
				w.listing()
			}
			list, err := pods.List(ctx, options)
			if err == nil {
				list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return w.of(pod.Spec.NodeName) == nil })
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector.String()
			if options.SendInitialEvents != nil && *options.SendInitialEvents {
				w.listing()
			}
			events, err := pods.Watch(ctx, options)
			if err != nil || w.only != "" {
				return events, err
			}
			return listwatch.Filter(events, w.concerns), nil
		},
	}))
}

// concerns reports whether an event is of a member's pod, or about no pod.
func (w *Watch) concerns(event watch.Event) bool {
	pod, ok := event.Object.(*corev1.Pod)
	if ok {
		w.shown.event(pod.ResourceVersion)
	}
	return !ok || event.Type == watch.Bookmark || event.Type == watch.Error || w.of(pod.Spec.NodeName) != nil
}

// list reads the pods of one node, as they are now.
func (w *Watch) list(ctx context.Context, name string) (*corev1.PodList, error) {
	selector := fields.OneTermEqualSelector(nodeNameField, name).String()
	patient := listwatch.Patient("the pods of "+name, listwatch.Of(w.pods.Pods(w.namespace), nil))
	found, err := patient.ListWithContext(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("cannot list the pods of node %s: %w", name, err)
	}
	list := found.(*corev1.PodList)
	// The fake clientset knows no selectors.
	list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != name })
	return list, nil
}

// pointers returns the pods of a list one by one, so that one that stays does
// not keep the others.
func pointers(list *corev1.PodList) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pod := list.Items[i]
		listwatch.Trim(&pod)
		pods[i] = &pod
	}
	return pods
}
