package vkubelet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// ResourceManager gives a provider read access to the pods of its node and to
// what they refer to, from caches. What it returns are copies, to keep and to
// change. It is safe for concurrent use.
//
// Environment variables need no ResourceManager: pods reach the provider with
// resolved values. Only those that no object has, such as of status.podIP, keep
// their ValueFrom (node.PodLifecycleHandler).
type ResourceManager struct {
	pods       corev1listers.PodLister
	secrets    corev1listers.SecretLister
	configMaps corev1listers.ConfigMapLister
	services   corev1listers.ServiceLister
	informers  *resourceInformers // nil where it was made from listers
}

// resourceInformers are what a Server can watch besides reading.
type resourceInformers struct {
	configMaps corev1informers.ConfigMapInformer
	secrets    corev1informers.SecretInformer
	services   corev1informers.ServiceInformer
}

// NewResourceManager makes a ResourceManager that reads from the given listers,
// whose informers the caller runs. It returns an error of class InvalidInput if
// one of them is nil. See NewResourceManagerFromInformers for one that shares
// its caches with a Server.
func NewResourceManager(pods corev1listers.PodLister, secrets corev1listers.SecretLister, configMaps corev1listers.ConfigMapLister, services corev1listers.ServiceLister) (*ResourceManager, error) {
	switch {
	case pods == nil:
		return nil, lacks("pod lister")
	case secrets == nil:
		return nil, lacks("secret lister")
	case configMaps == nil:
		return nil, lacks("config map lister")
	case services == nil:
		return nil, lacks("service lister")
	}
	return &ResourceManager{pods: pods, secrets: secrets, configMaps: configMaps, services: services}, nil
}

// NewResourceManagerFromInformers makes a ResourceManager that reads from the
// caches of the given informers, which the caller starts. A Server that is given
// it uses these informers too, in place of its own; so they should see what the
// pods of the node may refer to, and all Services. It returns an error of class
// InvalidInput if one of them is nil.
func NewResourceManagerFromInformers(pods corev1informers.PodInformer, secrets corev1informers.SecretInformer, configMaps corev1informers.ConfigMapInformer, services corev1informers.ServiceInformer) (*ResourceManager, error) {
	switch {
	case pods == nil:
		return nil, lacks("pod informer")
	case secrets == nil:
		return nil, lacks("secret informer")
	case configMaps == nil:
		return nil, lacks("config map informer")
	case services == nil:
		return nil, lacks("service informer")
	}
	return &ResourceManager{
		pods:       pods.Lister(),
		secrets:    secrets.Lister(),
		configMaps: configMaps.Lister(),
		services:   services.Lister(),
		informers:  &resourceInformers{configMaps: configMaps, secrets: secrets, services: services},
	}, nil
}

func lacks(what string) error {
	return errdefs.InvalidInputf("the resource manager was given no %s: all four are required", what)
}

// GetPods returns the pods in the cache. If they cannot be listed, which no
// informer's cache does, that is logged and there are none.
func (rm *ResourceManager) GetPods() []*corev1.Pod {
	pods, err := rm.pods.List(labels.Everything())
	if err != nil {
		log.L.WithError(err).Error("Cannot list the pods of the node; going on without")
	}
	copies := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		copies = append(copies, pod.DeepCopy())
	}
	return copies
}

// GetConfigMap returns a ConfigMap from the cache, or an error of class NotFound.
func (rm *ResourceManager) GetConfigMap(name, namespace string) (*corev1.ConfigMap, error) {
	configMap, err := rm.configMaps.ConfigMaps(namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("cannot get config map %s/%s: %w", namespace, name, err)
	}
	return configMap.DeepCopy(), nil
}

// GetSecret returns a Secret from the cache, or an error of class NotFound.
func (rm *ResourceManager) GetSecret(name, namespace string) (*corev1.Secret, error) {
	secret, err := rm.secrets.Secrets(namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("cannot get secret %s/%s: %w", namespace, name, err)
	}
	return secret.DeepCopy(), nil
}

// ListServices returns the Services in the cache.
func (rm *ResourceManager) ListServices() ([]*corev1.Service, error) {
	services, err := rm.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("cannot list the services: %w", err)
	}
	copies := make([]*corev1.Service, 0, len(services))
	for _, service := range services {
		copies = append(copies, service.DeepCopy())
	}
	return copies, nil
}
