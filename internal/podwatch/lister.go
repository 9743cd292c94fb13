package podwatch

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// Lister returns the pods as a lister, for callers that expect one.
func (p *Pods) Lister() corev1listers.PodLister { return lister{pods: p} }

type lister struct {
	pods      *Pods
	namespace string // empty: all
}

// List implements the generated listers.
func (l lister) List(selector labels.Selector) (selected []*corev1.Pod, _ error) {
	for _, pod := range l.pods.List() {
		if (l.namespace == metav1.NamespaceAll || l.namespace == pod.Namespace) && selector.Matches(labels.Set(pod.Labels)) {
			selected = append(selected, pod)
		}
	}
	return selected, nil
}

// Pods implements corev1listers.PodLister.
func (l lister) Pods(namespace string) corev1listers.PodNamespaceLister {
	return lister{pods: l.pods, namespace: namespace}
}

// Get implements the generated listers of a namespace.
func (l lister) Get(name string) (*corev1.Pod, error) { return l.pods.Get(l.namespace, name) }
