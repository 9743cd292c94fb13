package translate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Mapping is how home namespaces are mapped to remote namespaces.
type Mapping string

// The mappings.
const (
	// Same maps a namespace to the remote one of the same name.
	Same Mapping = "same"
	// Prefixed adds Namespaces.Prefix to the name.
	Prefixed Mapping = "prefix"
	// Fixed maps all namespaces to Namespaces.Name.
	Fixed Mapping = "fixed"
	// Mapped looks namespaces up in Namespaces.Map, and refuses those that it lacks.
	Mapped Mapping = "map"
)

// Namespaces maps home namespaces to remote namespaces.
type Namespaces struct {
	// Mapping is the rule. Defaults to Same.
	Mapping Mapping
	// Prefix, Name and Map belong to Prefixed, Fixed and Mapped.
	Prefix string
	Name   string
	Map    map[string]string
}

// Remote returns the remote namespace of a home namespace, or a permanent error.
func (n Namespaces) Remote(namespace string) (string, error) {
	switch n.Mapping {
	case Fixed:
		return n.Name, nil
	case Prefixed:
		if remote := n.Prefix + namespace; len(remote) <= maxLabelValue {
			return remote, nil
		}
		return "", errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: namespace %s with the prefix %s is too long for the name of a namespace", namespace, n.Prefix))
	case Mapped:
		if remote, ok := n.Map[namespace]; ok {
			return remote, nil
		}
		return "", errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: namespace %s has no mapping: add it to namespaces.map of the provider's configuration", namespace))
	}
	return namespace, nil
}

// shared reports whether several home namespaces may have the same remote namespace.
func (n Namespaces) shared() bool { return n.Mapping == Fixed || n.Mapping == Mapped }

// PodName returns the namespace and name of the remote pod. The name is that of the
// home pod, with a hash if home namespaces may share a remote one.
func (o *Options) PodName(namespace, name string) (types.NamespacedName, error) {
	remote, err := o.Namespaces.Remote(namespace)
	if err != nil {
		return types.NamespacedName{}, err
	}
	if o.Namespaces.shared() {
		name = shorten(name, 253, namespace, name)
	}
	return types.NamespacedName{Namespace: remote, Name: name}, nil
}

// The kinds of copied objects.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	// KindEnvironment is a Secret with the environment of a pod, KindFiles one with the
	// files in its volumes that depend on the pod: tokens, and fields of the downward
	// API. Their home name is the pod's UID.
	KindEnvironment = "Environment"
	KindFiles       = "Files"
)

// ObjectName returns the name of the remote copy of a home object. It is unique to
// cluster, node and namespace, so that these can share a remote namespace, and objects
// that are there already (kube-root-ca.crt) stay untouched.
func (o *Options) ObjectName(kind, namespace, name string) string {
	return shorten(name, 253, o.Home.Cluster, o.Home.Node, kind, namespace, name)
}

// ClaimName returns the name of the remote claim of a home claim. It contains the UID,
// so that a later claim of the same name does not get the data of an earlier one.
func (o *Options) ClaimName(claim *corev1.PersistentVolumeClaim) string {
	return shorten(claim.Name, 253, o.Home.Cluster, o.Home.Node, "PersistentVolumeClaim", claim.Namespace, claim.Name, string(claim.UID))
}

// EnvironmentName returns the name of the Secret of kind KindEnvironment.
func (o *Options) EnvironmentName(pod *corev1.Pod) string {
	return o.ObjectName(KindEnvironment, pod.Namespace, string(pod.UID))
}

// FilesName returns the name of the Secret of kind KindFiles.
func (o *Options) FilesName(pod *corev1.Pod) string {
	return o.ObjectName(KindFiles, pod.Namespace, string(pod.UID))
}
