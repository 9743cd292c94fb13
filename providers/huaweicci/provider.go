package huaweicci

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

// New returns the provider of a node, whose pods are those of one namespace of CCI. It sends
// no request. The error is of class InvalidInput if the configuration is wrong.
func New(ctx context.Context, home nodeutil.ProviderConfig, config Config) (*kubernetes.Provider, error) {
	if err := config.complete(config.checkAccess()); err != nil {
		return nil, err
	}
	client, err := config.client()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForService(ctx, home, config.Kubernetes, kubernetes.Service{
		Client: client, PrepareNamespace: config.prepareNamespace, CompletePod: config.completePod, Adopt: olderPod,
		OlderName: func(home types.NamespacedName) string { return config.Project + "-" + home.Name },
		ID:        strings.TrimPrefix(config.Endpoint, "https://") + "/" + string(config.API) + "/" + config.Project,
		Tenant:    tenantOf,
	})
}

// client returns the configuration of clients of the service.
func (c *Config) client() (*rest.Config, error) {
	client := &rest.Config{Host: c.Endpoint, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile}, QPS: -1, UserAgent: "virtual-kubelet"}
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("cannot read the endpoint of CCI: %w", err)
	}
	wrapper := transport{host: endpoint.Host, api: c.API, projectID: c.ProjectID, keys: c.keys}
	if c.IAM.User != "" {
		plain, err := rest.HTTPClientFor(client)
		if err != nil {
			return nil, fmt.Errorf("cannot create a client for IAM: %w", err)
		}
		if wrapper.tokens, err = newTokens(plain, &c.IAM, c.IAM.Project); err != nil {
			return nil, err
		}
	}
	client.WrapTransport = func(base http.RoundTripper) http.RoundTripper {
		wrapped := wrapper
		wrapped.base = base
		return &wrapped
	}
	return client, nil
}

// annotationProject is that of a namespace of CCI 1 with the ID of the project that it belongs to.
// No two accounts have the same.
const annotationProject = "tenant.kubernetes.io/project-id"

func tenantOf(namespace *corev1.Namespace) string { return namespace.Annotations[annotationProject] }

// The annotations of pods of the older provider.
const (
	olderNamespace = "virtual-kubelet-namespace"
	olderName      = "virtual-kubelet-podname"
	olderUID       = "virtual-kubelet-uid"
	olderNode      = "virtual-kubelet-nodename"
)

// olderPod returns the home pod of a pod of the older provider. No pod has other names than
// those that Kubernetes allows, and asking for one would fail at each start.
func olderPod(remote metav1.Object) (home types.NamespacedName, uid types.UID, node string) {
	has := remote.GetAnnotations()
	home = types.NamespacedName{Namespace: has[olderNamespace], Name: has[olderName]}
	if len(validation.IsDNS1123Label(home.Namespace))+len(validation.IsDNS1123Subdomain(home.Name)) > 0 {
		return home, "", ""
	}
	return home, types.UID(has[olderUID]), has[olderNode]
}
