package podenv

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// Source is where the objects come from (listers in production). An object that
// does not exist is an error of class NotFound (package errdefs), and only that:
// an optional object is left out for it, and waited for after any other error.
// What it returns is read only.
type Source interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
	// Services returns all services of a namespace.
	Services(namespace string) ([]*corev1.Service, error)
}

// Objects reads ConfigMaps and Secrets, as a node.ObjectSource does.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// NewSource returns the Source of what a node, or its provider, reads with. ctx is that of the
// reads. Nil services are none.
func NewSource(ctx context.Context, objects Objects, services corev1listers.ServiceLister) Source {
	return source{ctx, objects, services}
}

type source struct {
	ctx      context.Context
	objects  Objects
	services corev1listers.ServiceLister
}

// ConfigMap implements Source.
func (s source) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return s.objects.ConfigMap(s.ctx, namespace, name)
}

// Secret implements Source.
func (s source) Secret(namespace, name string) (*corev1.Secret, error) {
	return s.objects.Secret(s.ctx, namespace, name)
}

// Services implements Source.
func (s source) Services(namespace string) ([]*corev1.Service, error) {
	if s.services == nil {
		return nil, nil
	}
	return s.services.Services(namespace).List(labels.Everything())
}

// Options are what a pod's environment depends on beside the pod itself. The
// zero value works.
type Options struct {
	// HostIPs are the values of status.hostIP and status.hostIPs for a pod
	// whose status has none yet, and of the pod's IPs for one in the host's
	// network.
	HostIPs []string

	// NodeAllocatable are the values of resourceFieldRef for limits that
	// neither the container nor the pod sets.
	NodeAllocatable corev1.ResourceList

	// MasterServiceNamespace is where the service "kubernetes" lives, whose
	// variables every pod gets. Defaults to "default".
	MasterServiceNamespace string

	// File reads a file of a volume of the pod, for variables with a fileKeyRef;
	// fs.ErrNotExist of one that does not exist. Without it, these variables keep
	// their ValueFrom.
	File func(volume, path string) ([]byte, error)

	// Started reports whether a container runs already. What does not exist any more
	// of the objects that such a container started with is a problem, but not a fatal
	// one: the variables from there keep their ValueFrom, the sources stay in EnvFrom.
	// nil means that none runs.
	Started func(container string) bool
}
