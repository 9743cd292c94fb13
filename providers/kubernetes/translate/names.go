package translate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Mapping is how namespaces at home are mapped to remote ones.
type Mapping string

// The mappings.
const (
	// Same: to the one of the same name.
	Same Mapping = "same"
	// Prefixed: to the one of the same name after Namespaces.Prefix.
	Prefixed Mapping = "prefix"
	// Fixed: all to Namespaces.Name.
	Fixed Mapping = "fixed"
	// Mapped: as Namespaces.Map says; those that it has not are refused.
	Mapped Mapping = "map"
)

// Namespaces says which remote namespace stands for one at home.
type Namespaces struct {
	// Mapping is the rule. Defaults to Same.
	Mapping Mapping
	// Prefix, Name and Map belong to Prefixed, Fixed and Mapped.
	Prefix string
	Name   string
	Map    map[string]string
}

// Remote returns the remote namespace, or a permanent error.
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
		return "", errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: namespace %s is mapped to none of the remote cluster: add it to namespaces.map of the provider's configuration", namespace))
	}
	return namespace, nil
}

// shared tells whether several namespaces may be mapped to one.
func (n Namespaces) shared() bool { return n.Mapping == Fixed || n.Mapping == Mapped }

// PodName returns the namespace and name of the remote pod: the same name, unless
// namespaces share a remote one.
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

// The kinds of reflected objects.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	// KindEnvironment is a Secret with the environment of a pod, KindFiles one
	// with what is in its volumes that depends on the pod: tokens, and fields
	// of the downward API. Their name at home is the pod's UID.
	KindEnvironment = "Environment"
	KindFiles       = "Files"
)

// ObjectName returns the name of the remote object that stands for one at home. It
// is no other cluster's, node's or namespace's, so that all of these can share a
// remote namespace, and what is there already (kube-root-ca.crt) is left alone.
func (o *Options) ObjectName(kind, namespace, name string) string {
	return shorten(name, 253, o.Home.Cluster, o.Home.Node, kind, namespace, name)
}

// ClaimName returns the name of the remote claim for one at home. Another of the
// same name, later, has another: what the first held is not the second's.
func (o *Options) ClaimName(claim *corev1.PersistentVolumeClaim) string {
	return shorten(claim.Name, 253, o.Home.Cluster, o.Home.Node, "PersistentVolumeClaim", claim.Namespace, claim.Name, string(claim.UID))
}

// EnvironmentName and FilesName are ObjectName for what is for one pod.
func (o *Options) EnvironmentName(pod *corev1.Pod) string {
	return o.ObjectName(KindEnvironment, pod.Namespace, string(pod.UID))
}

// FilesName returns the name of the Secret of kind KindFiles.
func (o *Options) FilesName(pod *corev1.Pod) string {
	return o.ObjectName(KindFiles, pod.Namespace, string(pod.UID))
}
