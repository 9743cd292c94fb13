package nodeutil

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/kubeconfig"
)

// ClientsetFromEnv makes a client from the kubeconfig at the given path; without
// a path by kubectl's rules (the KUBECONFIG variable, the home directory). Where
// there is no such file, it uses the service account of the pod it runs in; a
// path that was given never leads to the cluster of another kubeconfig, nor does a
// file there without a current context, or an empty one, to that of the pod.
//
// The client does not limit its own rate, since the API server does, and speaks
// protobuf.
func ClientsetFromEnv(kubeConfigPath string) (*kubernetes.Clientset, error) {
	config, err := configFromEnv(kubeConfigPath)
	if err != nil {
		return nil, errdefs.AsInvalidInput(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(Protobuf(config))
	if err != nil {
		return nil, errdefs.AsInvalidInput(fmt.Errorf("cannot make a client for %s: %w", config.Host, err))
	}
	return client, nil
}

func configFromEnv(path string) (*rest.Config, error) {
	if path != "" {
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			config, err := rest.InClusterConfig()
			if err != nil {
				return nil, fmt.Errorf("there is no kubeconfig at %q, nor a service account to use instead: %w", path, err)
			}
			return config, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot use kubeconfig %q: %w", path, err)
		}
		config, err := kubeconfig.Load(path, "")
		if err != nil {
			return nil, fmt.Errorf("cannot use kubeconfig %q: %w", path, err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("found no usable kubeconfig by the KUBECONFIG variable or in the home directory, nor a service account: %w", err)
	}
	return config, nil
}

// Protobuf returns a copy of config for a client that asks for protobuf, which
// costs both sides a fraction of JSON.
func Protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// PodInformerFilter has an informer factory see the pods of one node only.
func PodInformerFilter(node string) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	})
}

// NodeLeaseV1Client returns the client for node leases.
func NodeLeaseV1Client(client kubernetes.Interface) coordinationv1.LeaseInterface {
	return client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
}
