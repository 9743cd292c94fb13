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
)

// ClientsetFromEnv makes a client from the kubeconfig at the given path, if
// there is such a file; else by kubectl's rules (the KUBECONFIG variable, the
// home directory), and else from the service account of the pod it runs in.
//
// The client does not limit its own rate, since the API server does, and speaks
// protobuf.
func ClientsetFromEnv(kubeConfigPath string) (*kubernetes.Clientset, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if kubeConfigPath != "" {
		if _, err := os.Stat(kubeConfigPath); err == nil {
			rules.ExplicitPath = kubeConfigPath
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot use kubeconfig %q: %w", kubeConfigPath, err)
		}
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, errdefs.AsInvalidInput(fmt.Errorf("no usable kubeconfig at %q, in KUBECONFIG, in the home directory or in the pod: %w", kubeConfigPath, err))
	}
	config.QPS = -1
	return kubernetes.NewForConfig(Protobuf(config))
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
