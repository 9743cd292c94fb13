package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// Service is a cloud service that runs pods and has the API of Kubernetes for its tenants:
// namespaces, pods, ConfigMaps, Secrets and events, but no nodes, and no namespace
// kube-system. A provider of such a service is this one with NewForService.
type Service struct {
	// Client configures the connection. Its WrapTransport may authenticate requests, and
	// translate them and their answers; bodies are JSON. Required.
	Client *rest.Config
	// PrepareNamespace makes sure that a namespace can have pods. It is called before the
	// pods are listed, and again when the namespace seems to be gone. It must be idempotent;
	// errors are retried. Required.
	PrepareNamespace func(ctx context.Context, client clientset.Interface, name string) error
	// CompletePod changes a remote pod before it is created. An error of class Permanent
	// refuses the pod. May be nil.
	CompletePod func(remote *corev1.Pod) error
	// Adopt returns the home pod of a remote pod that another provider has made, and the name
	// of its node; the UID is empty if it was made otherwise. Those of pods that the node has
	// at home are adopted when the provider starts. May be nil.
	Adopt func(remote metav1.Object) (home types.NamespacedName, uid types.UID, node string)
	// OlderName returns the name that the remote pod of a home pod has if another provider has
	// made it: it is asked for if a pod that has run is missing. Nil relies on the list.
	OlderName func(home types.NamespacedName) string
	// ID is the place that the pods are in, such as host and namespace. While it differs from
	// the one that is recorded on the node nothing is done. Empty is not checked.
	ID string
	// Tenant returns whose a namespace is, such as the ID of a project. It is recorded with ID, since
	// other credentials lead to another namespace of the same name. Empty if the service does not
	// show it. May be nil.
	Tenant func(namespace *corev1.Namespace) string
}

// CompleteForService sets defaults, and returns an error of class InvalidInput if a
// configuration is wrong, or needs what a service does not have. The node is the namespace
// config.Namespaces.Name; config.Remote is not used.
func CompleteForService(config Config) (Config, error) {
	config.APIVersion, config.Kind, config.Remote = ConfigAPIVersion, ConfigKind, Remote{InCluster: true}
	config.Namespaces.Mapping, config.Namespaces.Create = MappingFixed, true
	err := config.complete()
	if config.Capacity.Source == CapacityNodes || config.Stats == StatsKubelets || len(config.StorageClasses) > 0 || config.AllowHostNamespaces || config.AllowHostPath {
		err = errors.Join(err, errors.New("a service has no nodes and no storage classes: capacity.source: nodes, stats: kubelets, storageClasses, allowHostNamespaces and allowHostPath are for clusters"))
	}
	if err != nil {
		return Config{}, errdefs.AsInvalidInput(err)
	}
	return config, nil
}

// NewForService returns a provider whose node is one namespace of a service. It sends no
// request. Errors are those of CompleteForService.
func NewForService(ctx context.Context, home nodeutil.ProviderConfig, config Config, service Service) (*Provider, error) {
	config, err := CompleteForService(config)
	if err != nil {
		return nil, err
	}
	options, err := config.translation(home.Node.Name)
	if err != nil {
		return nil, err
	}
	client := rest.CopyConfig(service.Client)
	client.ContentType, client.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	clients, err := newClients(client, client)
	if err != nil {
		return nil, err
	}
	return newProvider(ctx, home, config, options, clients, &service)
}

// place returns the ID of a service, with the tenant where it is known: it is read once, since the
// credentials of a process stay.
func (p *Provider) place(ctx context.Context) (types.UID, error) {
	if p.service.ID == "" || p.service.Tenant == nil {
		return types.UID(p.service.ID), nil
	}
	tenant, known := p.cluster.tenantOf()
	if !known {
		namespace, err := p.remote.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
		switch {
		case apierror.IsNotFound(err): // it is made later, in the place that is found so far
			return types.UID(p.service.ID), nil
		case err != nil:
			return "", errdefs.AsUnavailable(remoteError("read whose namespace "+p.namespace+" is", err))
		}
		tenant = p.service.Tenant(namespace)
		p.cluster.setTenant(tenant)
	}
	if tenant == "" {
		return types.UID(p.service.ID), nil
	}
	return types.UID(p.service.ID + "/" + tenant), nil
}

// fuller returns two places, and one of them twice if the tenant of the other is not known: a version
// before did not record it, and a namespace that is not there does not show it.
func (s *Service) fuller(a, b types.UID) (types.UID, types.UID) {
	switch {
	case string(a) == s.ID && strings.HasPrefix(string(b), s.ID+"/"):
		return b, b
	case string(b) == s.ID && strings.HasPrefix(string(a), s.ID+"/"):
		return a, a
	}
	return a, b
}

// prepareService prepares the namespace of a service, and adopts the pods of another
// provider in it.
func (p *Provider) prepareService(ctx context.Context) error {
	if p.service == nil {
		return nil
	}
	if err := p.createNamespace(ctx, p.namespace); err != nil {
		return remoteError("prepare namespace "+p.namespace, err)
	}
	if err := p.checkRemoteCluster(ctx); err != nil { // that may have been made, and shows whose it is
		return err
	}
	if p.service.Adopt == nil {
		return nil
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := p.metadata.Resource(podKind.resource).Namespace(p.namespace).List(ctx, options)
		if err != nil {
			return remoteError("list the pods", err)
		}
		for i := range list.Items {
			if err := p.adoptOfService(ctx, &list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// adoptOfService adopts a remote pod of another provider, unless it belongs to another
// home, was adopted before, or its home pod has another one. It keeps its name.
func (p *Provider) adoptOfService(ctx context.Context, remote *metav1.PartialObjectMetadata) error {
	if p.translate.Home.Owns(remote) {
		name := translate.NameOf(remote)
		if usual, err := p.translate.PodName(name.Namespace, name.Name); err == nil && usual.Name != remote.Name {
			p.adopted.Store(translate.UIDOf(remote), remote.Name)
		}
		return nil
	}
	name, uid, node := p.service.Adopt(remote)
	if uid == "" || node != p.home.Node.Name || remote.Labels[translate.LabelCluster] != "" { // or another home has it
		return nil
	}
	local, err := p.home.Client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("read pod %s: %w", name, err)
	}
	if err != nil || local.UID != uid || local.Spec.NodeName != node {
		log.G(ctx).WithField("remotePod", remote.Name).Warn("The namespace has a pod of an older provider whose pod at home is gone, or in another cluster; not touching it: delete it if it is left over")
		return nil
	}
	at, err := p.remoteName(name.Namespace, name.Name, uid)
	if err != nil {
		return err
	}
	switch other, err := p.remote.CoreV1().Pods(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{}); {
	case err == nil && p.isOf(uid, other):
		log.G(ctx).WithField("remotePod", remote.Name).WithField("other", other.Name).Warn("The namespace has a pod with the annotations of an older provider, whose pod at home has another one; not touching it: delete it if it is left over")
		return nil
	case err != nil && !apierror.IsNotFound(err):
		return remoteError("read the pod "+at.Name, err)
	}
	labels, annotations := p.translate.MetadataOf(local)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": remote.UID, "labels": labels, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encode the labels of pod %s: %w", name, err)
	}
	_, err = p.metadata.Resource(podKind.resource).Namespace(p.namespace).
		Patch(ctx, remote.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: translate.FieldManager})
	if apierror.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) { // it was replaced meanwhile
		return nil
	}
	if err != nil {
		return remoteError("label the pod "+remote.Name+" of an older provider", err)
	}
	log.G(ctx).WithField("remotePod", remote.Name).WithField("pod", name.String()).Info("Adopted a pod of an older provider")
	p.adopted.Store(uid, remote.Name)
	return nil
}

// adoptOlder reports whether the remote pod of a home pod that has run is one of another
// provider, which a list has lacked, and adopts it.
func (p *Provider) adoptOlder(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	local, err := p.home.Pods.Pods(namespace).Get(name)
	if p.service == nil || p.service.OlderName == nil || err != nil || uid != "" && local.UID != uid || len(local.Status.ContainerStatuses) == 0 {
		return false, nil
	}
	if _, known := p.adopted.Load(local.UID); known {
		return false, nil
	}
	older := p.service.OlderName(types.NamespacedName{Namespace: namespace, Name: name})
	remote, err := p.remote.CoreV1().Pods(p.namespace).Get(ctx, older, metav1.GetOptions{})
	if apierror.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, remoteError("read the pod "+older+" of an older provider", err)
	}
	err = p.adoptOfService(ctx, meta.AsPartialObjectMetadata(remote))
	_, adopted := p.adopted.Load(local.UID)
	return adopted, err
}

// remoteName returns the namespace and name of the remote pod of a home pod: the usual ones,
// or those with which it was adopted. Without a UID the home pod is the one that there is.
func (p *Provider) remoteName(namespace, name string, uid types.UID) (types.NamespacedName, error) {
	at, err := p.translate.PodName(namespace, name)
	if err != nil || p.service == nil {
		return at, err
	}
	if uid == "" {
		if local, err := p.home.Pods.Pods(namespace).Get(name); err == nil {
			uid = local.UID
		}
	}
	if found, ok := p.adopted.Load(uid); ok {
		at.Name, _ = found.(string)
	}
	return at, nil
}
