package node

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// environment resolves the environment of pods from the informers' caches.
type environment struct {
	configMaps corev1listers.ConfigMapLister
	secrets    corev1listers.SecretLister
	services   corev1listers.ServiceLister
	sources    []kindInformer
	options    func() podenv.Options
	changes    atomic.Uint64 // of any object
}

type kindInformer struct {
	kind     string
	informer cache.SharedIndexInformer
}

func newEnvironment(cfg PodControllerConfig, hostIPs func() []string) *environment {
	return &environment{
		configMaps: cfg.ConfigMapInformer.Lister(),
		secrets:    cfg.SecretInformer.Lister(),
		services:   cfg.ServiceInformer.Lister(),
		options: func() podenv.Options {
			options := podenv.Options{HostIPs: hostIPs()}
			if cfg.NodeAllocatable != nil {
				options.NodeAllocatable = cfg.NodeAllocatable()
			}
			return options
		},
		sources: []kindInformer{
			{"ConfigMap", cfg.ConfigMapInformer.Informer()},
			{"Secret", cfg.SecretInformer.Informer()},
			{"Service", cfg.ServiceInformer.Informer()},
		},
	}
}

func (e *environment) informers() []kindInformer { return e.sources }

// resolve fills in the environment of pod, in place.
func (e *environment) resolve(pod *corev1.Pod) ([]podenv.Problem, error) {
	return podenv.Resolve(pod, e, e.options())
}

// ConfigMap implements podenv.Source.
func (e *environment) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return e.configMaps.ConfigMaps(namespace).Get(name)
}

// Secret implements podenv.Source.
func (e *environment) Secret(namespace, name string) (*corev1.Secret, error) {
	return e.secrets.Secrets(namespace).Get(name)
}

// Services implements podenv.Source.
func (e *environment) Services(namespace string) ([]*corev1.Service, error) {
	return e.services.Services(namespace).List(labels.Everything())
}

// missingObjects are the objects for which a pod has to wait.
func missingObjects(problems []podenv.Problem) map[podenv.Object]struct{} {
	var missing map[podenv.Object]struct{}
	for _, problem := range problems {
		if !problem.Fatal {
			continue
		}
		if missing == nil {
			missing = map[podenv.Object]struct{}{}
		}
		missing[problem.Object] = struct{}{}
	}
	return missing
}

// wakeWaiting has the pods looked at that wait for an object which appears or
// changes.
func (pc *PodController) wakeWaiting(kind string) cache.ResourceEventHandler {
	wake := func(obj any) {
		object, err := meta.Accessor(obj)
		if err != nil {
			return
		}
		pc.env.changes.Add(1)
		changed := podenv.Object{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
		pc.records.each(func(key string, r *podRecord) {
			r.mu.Lock()
			_, waits := r.waitsFor[changed]
			r.mu.Unlock()
			if waits {
				pc.syncs.Add(key)
			}
		})
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		UpdateFunc: func(_, after any) { wake(after) },
	}
}

var _ podenv.Source = (*environment)(nil)
