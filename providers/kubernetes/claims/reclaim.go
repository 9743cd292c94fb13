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
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

const (
	// orphanAge is how old a remote claim has to be to be removed by Sweep: it is
	// made before its volume.
	orphanAge = 2 * time.Minute
	pageSize  = 500
)

// reclaim deletes the remote claim of a volume whose claim at home is gone, where
// the volume's reclaim policy says so, and then the volume. seen is the volume as it was
// last observed.
func (c *Claims) reclaim(ctx context.Context, seen *corev1.PersistentVolume) error {
	// What is known of it may be of before: its policy decides on data.
	volume, err := c.opts.Home.CoreV1().PersistentVolumes().Get(ctx, seen.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err) || err == nil && volume.UID != seen.UID:
		return nil
	case err != nil:
		return fmt.Errorf("cannot read persistentvolume %q: %v", seen.Name, err)
	}
	at, ok := handleOf(volume)
	if !ok || !c.opts.Translate.Home.OwnsAtHome(volume) || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return c.release(ctx, volume)
	}
	released := volume.Status.Phase == corev1.VolumeReleased || volume.DeletionTimestamp != nil && volume.Status.Phase != corev1.VolumeBound
	if !released {
		return nil
	}
	if there, err := c.claimed(ctx, volume); err != nil || there {
		return err
	}
	if err := c.deleteRemote(ctx, at); err != nil {
		return err
	}
	if volume.DeletionTimestamp != nil {
		return c.release(ctx, volume)
	}
	err = c.opts.Home.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(volume.UID))})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot delete persistentvolume %q, whose remote claim is deleted: %v", volume.Name, err)
	}
	return nil
}

// release lets a volume that is deleted go.
func (c *Claims) release(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.DeletionTimestamp == nil || !slices.Contains(volume.Finalizers, finalizer) {
		return nil
	}
	next := volume.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	_, err := c.opts.Home.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{FieldManager: translate.FieldManager})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot let persistentvolume %q go: %v", volume.Name, err)
	}
	return nil
}

// claimed tells whether the claim at home of a volume is there: its phase may be
// of before.
func (c *Claims) claimed(ctx context.Context, volume *corev1.PersistentVolume) (bool, error) {
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

// deleteRemote deletes a remote claim, if it is there and ours.
func (c *Claims) deleteRemote(ctx context.Context, at types.NamespacedName) error {
	remotes := c.opts.Remote.CoreV1().PersistentVolumeClaims(at.Namespace)
	found, err := remotes.Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read claim %s in the remote cluster: %v", at, err)
	case !c.opts.Translate.Home.Owns(found):
		log.G(ctx).WithField("claim", at).Warn("A claim in the remote cluster has no longer the labels of this node, and is left alone")
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

// Sweep deletes remote claims of which nothing came: they never were bound, hence
// hold nothing, and neither the claim at home is there for which they were made
// nor a volume. namespace is the remote one, or all. It must not be called before
// HasSynced.
func (c *Claims) Sweep(ctx context.Context, namespace string) error {
	needed := map[types.UID]struct{}{}
	for _, obj := range c.claims.GetStore().List() {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			needed[claim.UID] = struct{}{}
		}
	}
	stands := map[types.NamespacedName]struct{}{}
	for _, obj := range c.volumes.GetStore().List() {
		if volume, ok := obj.(*corev1.PersistentVolume); ok {
			at, _ := handleOf(volume)
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
