package machine

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// onePod lists one pod alone: a machine is sent nothing of others, such as what is in their
// volumes.
type onePod struct {
	all   corev1listers.PodLister
	owner podgroup.Owner
}

var _ corev1listers.PodLister = onePod{}

// List implements corev1listers.PodLister.
func (o onePod) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return o.Pods(o.owner.Namespace).List(selector)
}

// Pods implements corev1listers.PodLister.
func (o onePod) Pods(namespace string) corev1listers.PodNamespaceLister {
	return onePodOf{o.all.Pods(namespace), o.owner, namespace}
}

type onePodOf struct {
	corev1listers.PodNamespaceLister
	owner     podgroup.Owner
	namespace string
}

// List implements corev1listers.PodNamespaceLister.
func (o onePodOf) List(selector labels.Selector) ([]*corev1.Pod, error) {
	pod, err := o.Get(o.owner.Name)
	if apierrors.IsNotFound(err) || err == nil && !selector.Matches(labels.Set(pod.Labels)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []*corev1.Pod{pod}, nil
}

// Get implements corev1listers.PodNamespaceLister.
func (o onePodOf) Get(name string) (*corev1.Pod, error) {
	if o.namespace == o.owner.Namespace && name == o.owner.Name {
		pod, err := o.PodNamespaceLister.Get(name)
		if err != nil || pod.UID == o.owner.UID {
			return pod, err
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}
