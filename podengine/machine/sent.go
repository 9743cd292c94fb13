package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
)

// withoutCluster makes the configuration that of an engine whose pods come from another process.
func withoutCluster(config *podengine.Config) {
	config.Sent = true
	config.Objects, config.Tokens, config.Claims, config.NodeLabels = noObjects{}, nil, nil, nil
	config.Services = corev1listers.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
	if config.Events == nil {
		config.Events = eventLog{}
	}
}

// noObjects has no ConfigMaps and Secrets.
type noObjects struct{}

func (noObjects) Follow(*corev1.Pod) {}
func (noObjects) Forget(types.UID)   {}

func (noObjects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return nil, errdefs.NotFoundf("ConfigMap %s/%s cannot be read here", namespace, name)
}

func (noObjects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return nil, errdefs.NotFoundf("Secret %s/%s cannot be read here", namespace, name)
}

func (noObjects) Subscribe(func(kind, namespace, name string)) (unsubscribe func()) { return func() {} }

// eventLog logs events.
type eventLog struct{}

func (eventLog) Event(object runtime.Object, kind, reason, message string) {
	fields := log.Fields{"reason": reason}
	if pod, ok := object.(*corev1.Pod); ok {
		fields["namespace"], fields["pod"] = pod.Namespace, pod.Name
	}
	logger := log.L.WithFields(fields)
	if kind == corev1.EventTypeWarning {
		logger.Warn(message)
	} else {
		logger.Info(message)
	}
}

func (l eventLog) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	l.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (l eventLog) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	l.Eventf(object, kind, reason, format, args...)
}
