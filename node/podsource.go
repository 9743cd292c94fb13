package node

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podlifecycle"
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

	// HasSynced reports whether all pods are known that there were when it began.
	HasSynced() bool

	// Subscribe has handler notified of the pods, and of every change from then on,
	// one at a time and in order. The calls do not block. synced is closed when
	// handler has been notified of all pods that there were when the source began.
	Subscribe(handler cache.ResourceEventHandler) (synced <-chan struct{}, unsubscribe func(), err error)
}

// source is where the pods come from.
func (cfg *PodControllerConfig) source() PodSource {
	if cfg.Pods != nil {
		return cfg.Pods
	}
	// From now on the informer's factory starts it.
	return podlifecycle.InformedPods(cfg.PodInformer)
}
