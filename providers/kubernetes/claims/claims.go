package claims

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// Provisioner is the provisioner of the storage classes at home whose volumes are
// in the remote cluster, and the driver of the PersistentVolumes that stand for
// these.
const Provisioner = "kubernetes.virtual-kubelet.io"

// bindDelay is when to look again for a claim that has been given a volume.
const bindDelay = time.Second

const (
	// nodeInterval is how often to look whether this process has the node again.
	nodeInterval = 5 * time.Second
	// syncTimeout is how long one attempt may take: a call that hangs holds all others.
	syncTimeout = time.Minute
)

// Options say which claims are served, and how.
type Options struct {
	// Translate has the names of remote claims.
	Translate *translate.Options
	// Classes are the remote storage classes, by the names of those at home; an
	// empty one is the remote cluster's default.
	Classes map[string]string
	// Delete lets volumes have the reclaim policy of their class. Without, it is
	// Retain.
	Delete bool
	// Home and Remote are the clusters.
	Home, Remote kubernetes.Interface
	// MayBegin reports whether this process may make and delete claims and volumes of its
	// own accord: another one may have the node. Nil means always.
	MayBegin func() bool
	// EnsureNamespace makes a remote namespace, where it may. Required.
	EnsureNamespace func(ctx context.Context, name string) error
	// Tell records an event on a claim at home. It must not block. Required.
	Tell func(claim *corev1.PersistentVolumeClaim, kind, reason, message string)
}

// Claims serves the claims of a node. Make it with New. It is safe for concurrent
// use.
type Claims struct {
	opts    Options
	queue   workqueue.TypedRateLimitingInterface[key]
	claims  cache.SharedIndexInformer
	volumes cache.SharedIndexInformer // of this node
}

// New makes Claims, which do nothing yet: see Run.
func New(opts Options) *Claims {
	c := &Claims{
		opts:  opts,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](time.Second, 2*time.Minute)),
	}
	c.claims, c.volumes = c.newInformers()
	return c
}

// Of returns the names of the remote claims of a pod's volumes, by the volumes'
// names. A claim that has no volume yet gets one; until it is bound to it, which
// the home cluster does, the error asks to come back.
func (c *Claims) Of(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	found := map[string]string{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name
		default:
			continue
		}
		claim, err := c.claim(ctx, pod, name)
		if err != nil {
			return nil, err
		}
		if v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod) {
			return nil, errdefs.AsPermanent(fmt.Errorf("persistentvolumeclaim %q of volume %s was not made for the pod", name, v.Name))
		}
		if found[v.Name], err = c.remoteOf(ctx, claim); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (c *Claims) claim(ctx context.Context, pod *corev1.Pod, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := c.opts.Home.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return nil, fmt.Errorf("persistentvolumeclaim %q not found", name)
	case err != nil:
		return nil, fmt.Errorf("cannot read persistentvolumeclaim %q: %v", name, err)
	case claim.DeletionTimestamp != nil:
		return nil, fmt.Errorf("persistentvolumeclaim %q is being deleted", name)
	}
	return claim, nil
}

// remoteOf returns the name of the remote claim for one at home.
func (c *Claims) remoteOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	if claim.Spec.VolumeName == "" {
		if err := c.provision(ctx, claim); err != nil {
			return "", err
		}
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", errdefs.AsRetryAfter(fmt.Errorf("persistentvolumeclaim %q is not bound yet", claim.Name), bindDelay)
	}
	volume, err := c.opts.Home.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot read persistentvolume %q: %v", claim.Spec.VolumeName, err)
	}
	at, ok := handleOf(volume)
	switch of := volume.Spec.ClaimRef; {
	case !ok:
		return "", notSupported("persistentvolumeclaim %q is bound to a volume of the home cluster: use a storage class with the provisioner %s", claim.Name, Provisioner)
	case !c.opts.Translate.Home.OwnsAtHome(volume):
		return "", notSupported("persistentvolumeclaim %q is bound to a volume of another node, %s", claim.Name, volume.Labels[translate.LabelNode])
	case of == nil || of.UID != claim.UID:
		return "", fmt.Errorf("persistentvolume %q, which persistentvolumeclaim %q names, is bound to another claim", volume.Name, claim.Name)
	}
	namespace, err := c.opts.Translate.Namespaces.Remote(claim.Namespace)
	if err != nil {
		return "", err
	}
	if at.Namespace != namespace {
		return "", notSupported("persistentvolumeclaim %q is bound to a volume in the remote namespace %s, and pods of its namespace run in %s", claim.Name, at.Namespace, namespace)
	}
	return at.Name, c.exists(ctx, claim, at)
}

// exists makes sure that the remote claim is there for which the volume of a claim
// stands. One that is gone is not made again: that would be an empty volume, and the
// pods would not know.
func (c *Claims) exists(ctx context.Context, claim *corev1.PersistentVolumeClaim, at types.NamespacedName) error {
	_, err := c.opts.Remote.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		err := fmt.Errorf("claim %s of the remote cluster, which has the data of persistentvolumeclaim %q, does not exist any more: restore it there under that name, or delete the persistentvolumeclaim to begin with an empty one", at, claim.Name)
		c.opts.Tell(claim, corev1.EventTypeWarning, "RemoteClaimLost", err.Error())
		return errdefs.AsUnavailable(err)
	case err != nil:
		return errdefs.AsUnavailable(fmt.Errorf("cannot read claim %s in the remote cluster: %v", at, err))
	}
	return nil
}

// Knows reports whether a remote claim with the labels of this cluster and node is of a
// claim, or of a volume, that is at home.
func (c *Claims) Knows(ctx context.Context, remote metav1.Object) (bool, error) {
	of := translate.NameOf(remote)
	claim, err := c.opts.Home.CoreV1().PersistentVolumeClaims(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case err == nil && claim.UID == translate.UIDOf(remote):
		return true, nil
	case err != nil && !apierror.IsNotFound(err):
		return false, fmt.Errorf("read persistentvolumeclaim %s: %w", of, err)
	}
	volume, err := c.opts.Home.CoreV1().PersistentVolumes().Get(ctx, volumeName(translate.UIDOf(remote)), metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the persistentvolume of persistentvolumeclaim %s: %w", of, err)
	}
	return c.opts.Translate.Home.OwnsAtHome(volume), nil
}

// class returns the storage class of a claim that is to be served; an error says
// why it is not.
func (c *Claims) class(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := classOf(claim)
	if _, ok := c.opts.Classes[name]; !ok {
		return nil, notSupported("persistentvolumeclaim %q has storage class %q, which the provider's configuration does not map to one of the remote cluster in storageClasses", claim.Name, name)
	}
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return nil, notSupported("persistentvolumeclaim %q has a data source", claim.Name)
	}
	class, err := c.opts.Home.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read storage class %q of persistentvolumeclaim %q: %v", name, claim.Name, err)
	}
	if class.Provisioner != Provisioner {
		return nil, notSupported("persistentvolumeclaim %q waits for a volume of the home cluster, from %s: use a storage class with the provisioner %s", claim.Name, class.Provisioner, Provisioner)
	}
	return class, nil
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

func notSupported(format string, args ...any) error {
	return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: "+format, args...))
}
