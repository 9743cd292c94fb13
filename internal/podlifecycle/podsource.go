package podlifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// InformedPods are the pods that an informer sees, which the informer's factory starts
// from now on.
func InformedPods(informer corev1informers.PodInformer) PodSource {
	return informedPods{informer.Informer(), informer.Lister()}
}

type informedPods struct {
	informer cache.SharedIndexInformer
	lister   corev1listers.PodLister
}

func (p informedPods) Get(namespace, name string) (*corev1.Pod, error) {
	return p.lister.Pods(namespace).Get(name)
}

func (p informedPods) List() []*corev1.Pod {
	pods, _ := p.lister.List(labels.Everything()) // a cache returns no errors
	return pods
}

func (p informedPods) HasSynced() bool { return p.informer.HasSynced() }

func (p informedPods) Subscribe(handler cache.ResourceEventHandler) (<-chan struct{}, func(), error) {
	return subscribe(p.informer, handler)
}

var _ PodSource = informedPods{}

// subscribe is PodSource's Subscribe for any informer.
func subscribe(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (<-chan struct{}, func(), error) {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot watch through an informer that has been stopped: %w", err)
	}
	return registration.HasSyncedChecker().Done(), func() { _ = informer.RemoveEventHandler(registration) }, nil
}
