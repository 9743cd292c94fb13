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
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// Provisioner is the provisioner of the home storage classes whose volumes are in the
// remote cluster, and the driver of the PersistentVolumes for these.
const Provisioner = "kubernetes.virtual-kubelet.io"

// bindDelay is how long to wait for a claim to be bound to its new volume.
const bindDelay = time.Second

const (
	// mayBeginInterval is how often to check MayBegin while it returns false.
	mayBeginInterval = 5 * time.Second
	// syncTimeout is the timeout of one attempt: a call that hangs would hold up all
	// others.
	syncTimeout = time.Minute
)

// Options configure which claims are provisioned, and how.
type Options struct {
	// Translate has the names of remote claims.
	Translate *translate.Options
	// Classes are the remote storage classes by the names of the home classes. An empty
	// value is the remote cluster's default.
	Classes map[string]string
	// Delete gives volumes the reclaim policy of their class. Without it, it is Retain.
	Delete bool
	// Home and Remote are the clusters.
	Home, Remote kubernetes.Interface
	// MayBegin reports whether this process may create and delete claims and volumes:
	// another process may hold the node. Nil means always.
	MayBegin func() bool
	// EnsureNamespace creates a remote namespace if the configuration allows it.
	// Required.
	EnsureNamespace func(ctx context.Context, name string) error
	// RecordEvent records an event on a home claim. It must not block. Required.
	RecordEvent func(claim *corev1.PersistentVolumeClaim, kind, reason, message string)
}

// Claims provisions, expands and deletes the volumes of a node. Create it with New. It
// is safe for concurrent use.
type Claims struct {
	opts    Options
	queue   workqueue.TypedRateLimitingInterface[key]
	claims  cache.SharedIndexInformer
	volumes cache.SharedIndexInformer // of this node
}

// New returns Claims that do nothing before Run.
func New(opts Options) *Claims {
	c := &Claims{
		opts:  opts,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](time.Second, 2*time.Minute)),
	}
	c.claims, c.volumes = c.newInformers()
	return c
}

// RemoteClaims returns the names of the remote claims of a pod's volumes by the names
// of the volumes. It provisions a claim that has no volume; until the home cluster has
// bound the two, it returns an error with a time to retry.
func (c *Claims) RemoteClaims(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
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
		claim, err := c.getClaim(ctx, pod, name)
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

func (c *Claims) getClaim(ctx context.Context, pod *corev1.Pod, name string) (*corev1.PersistentVolumeClaim, error) {
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

// remoteOf returns the name of the remote claim of a home claim.
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
	at, ok := remoteClaimOf(volume)
	switch of := volume.Spec.ClaimRef; {
	case !ok:
		return "", notSupportedError("persistentvolumeclaim %q is bound to a volume of the home cluster: use a storage class with the provisioner %s", claim.Name, Provisioner)
	case !c.opts.Translate.Home.OwnsAtHome(volume):
		return "", notSupportedError("persistentvolumeclaim %q is bound to a volume of another node, %s", claim.Name, volume.Labels[translate.LabelNode])
	case of == nil || of.UID != claim.UID:
		return "", fmt.Errorf("persistentvolume %q, which persistentvolumeclaim %q names, is bound to another claim", volume.Name, claim.Name)
	}
	namespace, err := c.opts.Translate.Namespaces.Remote(claim.Namespace)
	if err != nil {
		return "", err
	}
	if at.Namespace != namespace {
		return "", notSupportedError("persistentvolumeclaim %q is bound to a volume in the remote namespace %s, and pods of its namespace run in %s", claim.Name, at.Namespace, namespace)
	}
	return at.Name, c.checkExists(ctx, claim, at)
}

// checkExists returns an error if the remote claim of a home claim does not exist. It
// is not created again: the new volume would be empty, and the pods would not notice.
func (c *Claims) checkExists(ctx context.Context, claim *corev1.PersistentVolumeClaim, at types.NamespacedName) error {
	_, err := c.opts.Remote.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		err := fmt.Errorf("claim %s of the remote cluster, which has the data of persistentvolumeclaim %q, does not exist any more: restore it there under that name, or delete the persistentvolumeclaim to begin with an empty one", at, claim.Name)
		c.opts.RecordEvent(claim, corev1.EventTypeWarning, "RemoteClaimLost", err.Error())
		return errdefs.AsUnavailable(err)
	case err != nil:
		return errdefs.AsUnavailable(fmt.Errorf("cannot read claim %s in the remote cluster: %v", at, err))
	}
	return nil
}

// Owns reports whether the home cluster has the claim or the volume of a remote claim
// with the labels of this cluster and node.
func (c *Claims) Owns(ctx context.Context, remote metav1.Object) (bool, error) {
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

// classFor returns the storage class of a claim that this node provisions, or an error
// that says why it does not.
func (c *Claims) classFor(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name := classOf(claim)
	if _, ok := c.opts.Classes[name]; !ok {
		return nil, notSupportedError("persistentvolumeclaim %q has storage class %q, which the provider's configuration does not map to one of the remote cluster in storageClasses", claim.Name, name)
	}
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return nil, notSupportedError("persistentvolumeclaim %q has a data source", claim.Name)
	}
	class, err := c.opts.Home.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read storage class %q of persistentvolumeclaim %q: %v", name, claim.Name, err)
	}
	if class.Provisioner != Provisioner {
		return nil, notSupportedError("persistentvolumeclaim %q waits for a volume of the home cluster, from %s: use a storage class with the provisioner %s", claim.Name, class.Provisioner, Provisioner)
	}
	return class, nil
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

func notSupportedError(format string, args ...any) error {
	return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: "+format, args...))
}
