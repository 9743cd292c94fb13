package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// PodSource is where a PodController sees the pods of its node. Package nodeutil
// has one for many nodes. It is safe for concurrent use; what it returns is read
// only.
type PodSource interface {
	// Get returns the pod of that name. An error of class NotFound says that
	// the node has none.
	Get(namespace, name string) (*corev1.Pod, error)

	// List returns all pods.
	List() []*corev1.Pod

	// HasSynced tells whether all pods are known that there were when it began.
	HasSynced() bool

	// Subscribe has handler told of the pods, and of every change from then on,
	// one at a time and in order. The calls do not block. told is closed when
	// handler has been told of all pods that there were when the source began.
	Subscribe(handler cache.ResourceEventHandler) (told <-chan struct{}, unsubscribe func(), err error)
}

// source is where the pods come from.
func (cfg *PodControllerConfig) source() PodSource {
	if cfg.Pods != nil {
		return cfg.Pods
	}
	// From now on the informer's factory starts it.
	return informedPods{cfg.PodInformer.Informer(), cfg.PodInformer.Lister()}
}

// informedPods are the pods that an informer sees.
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

// subscribe is PodSource's Subscribe for any informer.
func subscribe(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) (<-chan struct{}, func(), error) {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot watch through an informer that has been stopped: %w", err)
	}
	return registration.HasSyncedChecker().Done(), func() { _ = informer.RemoveEventHandler(registration) }, nil
}

var _ PodSource = informedPods{}
