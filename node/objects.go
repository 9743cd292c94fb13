package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectSource reads the ConfigMaps and Secrets that pods name, so that a node
// need not see those of the whole cluster. It is safe for concurrent use; what
// it returns is read only.
type ObjectSource interface {
	// Follow says that the node has this pod: what it names may be read, and
	// kept, until Forget. It is called again when the pod has changed.
	Follow(pod *corev1.Pod)
	// Forget says that the node has the pod no more. The pod may be unknown.
	Forget(uid types.UID)

	// ConfigMap and Secret return an object. An error of class NotFound says
	// that it does not exist; any other is a reason to try again.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)

	// Subscribe has changed called when an object that was read for a pod
	// appears or changes, kind being "ConfigMap" or "Secret". The call does not
	// block.
	Subscribe(changed func(kind, namespace, name string)) (unsubscribe func())
}
