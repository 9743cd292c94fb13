package podobjects

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// readTimeout bounds a read by a lister, which has no context.
const readTimeout = 10 * time.Second

// ConfigMaps returns the cache as a lister, for callers that expect one. Get is
// ConfigMap, and so may ask the API server; List returns what is watched at the
// moment, not what the cluster has.
func (c *Cache) ConfigMaps() corev1listers.ConfigMapLister {
	return configMapLister{lister[*corev1.ConfigMap]{cache: c, kind: kindConfigMap, get: c.ConfigMap}}
}

// Secrets is ConfigMaps for Secrets.
func (c *Cache) Secrets() corev1listers.SecretLister {
	return secretLister{lister[*corev1.Secret]{cache: c, kind: kindSecret, get: c.Secret}}
}

type lister[T metav1.Object] struct {
	cache     *Cache
	kind      string
	namespace string // empty: all
	get       func(ctx context.Context, namespace, name string) (T, error)
}

// List implements the generated listers.
func (l lister[T]) List(selector labels.Selector) (found []T, _ error) {
	l.cache.mu.Lock()
	defer l.cache.mu.Unlock()
	for of, e := range l.cache.entries {
		if of.Kind != l.kind || l.namespace != "" && of.Namespace != l.namespace || e.watch == nil || e.watch.object == nil {
			continue
		}
		if selector.Matches(labels.Set(e.watch.object.GetLabels())) {
			found = append(found, e.watch.object.(T))
		}
	}
	return found, nil
}

// Get implements the generated listers of a namespace.
func (l lister[T]) Get(name string) (T, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), readTimeout,
		fmt.Errorf("the API server has not answered in %v", readTimeout))
	defer cancel()
	return l.get(ctx, l.namespace, name)
}

func (l lister[T]) in(namespace string) lister[T] {
	l.namespace = namespace
	return l
}

type configMapLister struct{ lister[*corev1.ConfigMap] }

func (l configMapLister) ConfigMaps(namespace string) corev1listers.ConfigMapNamespaceLister {
	return l.in(namespace)
}

type secretLister struct{ lister[*corev1.Secret] }

func (l secretLister) Secrets(namespace string) corev1listers.SecretNamespaceLister {
	return l.in(namespace)
}
