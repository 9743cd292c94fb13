package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

const (
	// orphanAge is the minimum age of a remote claim that CollectGarbage deletes: a
	// remote claim is created before its volume.
	orphanAge = 2 * time.Minute
	pageSize  = 500
)

// reclaim deletes the remote claim of a volume whose home claim is deleted, and then
// the volume, if its reclaim policy is Delete. seen is the volume from the cache.
func (c *Claims) reclaim(ctx context.Context, seen *corev1.PersistentVolume) error {
	// The policy decides about data, so a cached one is not good enough.
	volume, err := c.opts.Home.CoreV1().PersistentVolumes().Get(ctx, seen.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err) || err == nil && volume.UID != seen.UID:
		return nil
	case err != nil:
		return fmt.Errorf("cannot read persistentvolume %q: %v", seen.Name, err)
	}
	at, ok := remoteClaimOf(volume)
	if !ok || !c.opts.Translate.Home.OwnsAtHome(volume) || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return c.removeFinalizer(ctx, volume)
	}
	released := volume.Status.Phase == corev1.VolumeReleased || volume.DeletionTimestamp != nil && volume.Status.Phase != corev1.VolumeBound
	if !released {
		return nil
	}
	if there, err := c.isClaimed(ctx, volume); err != nil || there {
		return err
	}
	if err := c.deleteRemote(ctx, at); err != nil {
		return err
	}
	if volume.DeletionTimestamp != nil {
		return c.removeFinalizer(ctx, volume)
	}
	err = c.opts.Home.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(volume.UID))})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot delete persistentvolume %q, whose remote claim is deleted: %v", volume.Name, err)
	}
	return nil
}

// removeFinalizer removes the finalizer from a volume that is being deleted.
func (c *Claims) removeFinalizer(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.DeletionTimestamp == nil || !slices.Contains(volume.Finalizers, finalizer) {
		return nil
	}
	next := volume.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	_, err := c.opts.Home.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{FieldManager: translate.FieldManager})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot remove the finalizer of persistentvolume %q: %v", volume.Name, err)
	}
	return nil
}

// isClaimed reports whether the home claim of a volume exists, since the phase of the
// volume may be outdated.
func (c *Claims) isClaimed(ctx context.Context, volume *corev1.PersistentVolume) (bool, error) {
	of := volume.Spec.ClaimRef
	if of == nil {
		return false, nil
	}
	claim, err := c.opts.Home.CoreV1().PersistentVolumeClaims(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot read persistentvolumeclaim %s/%s: %v", of.Namespace, of.Name, err)
	}
	return claim.UID == of.UID, nil
}

// deleteRemote deletes a remote claim, if it exists and is owned by this node.
func (c *Claims) deleteRemote(ctx context.Context, at types.NamespacedName) error {
	remotes := c.opts.Remote.CoreV1().PersistentVolumeClaims(at.Namespace)
	found, err := remotes.Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read claim %s in the remote cluster: %v", at, err)
	case !c.opts.Translate.Home.Owns(found):
		log.G(ctx).WithField("claim", at).Warn("Not deleting a claim in the remote cluster that lacks the labels of this node")
		return nil
	case found.DeletionTimestamp != nil:
		return nil
	}
	err = remotes.Delete(ctx, at.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot delete claim %s in the remote cluster: %v", at, err)
	}
	return nil
}

// CollectGarbage deletes remote claims that were never bound, and so hold no data, if
// neither their home claim nor a volume exists. namespace is the remote namespace, or
// all. It must not be called before HasSynced returns true.
func (c *Claims) CollectGarbage(ctx context.Context, namespace string) error {
	needed := map[types.UID]struct{}{}
	for _, obj := range c.claims.GetStore().List() {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			needed[claim.UID] = struct{}{}
		}
	}
	stands := map[types.NamespacedName]struct{}{}
	for _, obj := range c.volumes.GetStore().List() {
		if volume, ok := obj.(*corev1.PersistentVolume); ok {
			at, _ := remoteClaimOf(volume)
			stands[at] = struct{}{}
		}
	}
	var errs []error
	options := metav1.ListOptions{LabelSelector: c.opts.Translate.Home.Selector(), Limit: pageSize}
	for {
		list, err := c.opts.Remote.CoreV1().PersistentVolumeClaims(namespace).List(ctx, options)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for i := range list.Items {
			found := &list.Items[i]
			at := types.NamespacedName{Namespace: found.Namespace, Name: found.Name}
			_, home := needed[translate.UIDOf(found)]
			_, volume := stands[at]
			if !home && !volume && found.Status.Phase == corev1.ClaimPending && time.Since(found.CreationTimestamp.Time) >= orphanAge {
				errs = append(errs, c.deleteRemote(ctx, at))
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return errors.Join(errs...)
		}
	}
}
