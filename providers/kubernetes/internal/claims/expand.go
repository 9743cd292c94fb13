package claims

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// expandInterval is how often to check whether a remote claim has been resized.
const expandInterval = 15 * time.Second

// expand requests the size of the home claim for the remote claim. Once that is
// resized, it updates the capacity of the home volume and claim. If the remote cluster
// refuses, an event says so.
func (c *Claims) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	volume, ok := stored[*corev1.PersistentVolume](c.volumes, claim.Spec.VolumeName)
	if !ok || claim.Status.Phase != corev1.ClaimBound || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil // the claim is queued again when its volume is known
	}
	at, ok := remoteClaimOf(volume)
	if wanted, has := claim.Spec.Resources.Requests.Storage(), claim.Status.Capacity.Storage(); !ok || wanted.Cmp(*has) <= 0 {
		return nil
	}
	err := c.resize(ctx, claim, volume, at)
	if err != nil && ctx.Err() == nil {
		c.opts.RecordEvent(claim, corev1.EventTypeWarning, "VolumeResizeFailed", err.Error())
	}
	return err
}

func (c *Claims) resize(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, at types.NamespacedName) error {
	wanted := *claim.Spec.Resources.Requests.Storage()
	remote, err := c.opts.Remote.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot read claim %s in the remote cluster: %v", at, err)
	}
	if !c.opts.Translate.Home.Owns(remote) {
		return errdefs.AsConflict(c.opts.Translate.Home.NameConflict("PersistentVolumeClaim", remote))
	}
	if remote.Spec.Resources.Requests.Storage().Cmp(wanted) != 0 { // it may be smaller again, after a size that was not available
		if remote, err = c.applyRemote(ctx, remote, wanted); err != nil {
			return err
		}
		c.opts.RecordEvent(claim, corev1.EventTypeNormal, "Resizing", fmt.Sprintf("Claim %s of the remote cluster is asked to have %s", at, wanted.String()))
	}
	has := *remote.Status.Capacity.Storage()
	if has.Cmp(wanted) < 0 {
		c.queue.AddAfter(key{claim.Namespace, claim.Name}, expandInterval)
		return nil
	}
	if err := c.applyHome(ctx, claim, volume, has); err != nil {
		return err
	}
	c.opts.RecordEvent(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", fmt.Sprintf("Claim %s of the remote cluster has %s", at, has.String()))
	return nil
}

// applyRemote requests another size of a remote claim. The UID makes sure that it is
// still the same claim.
func (c *Claims) applyRemote(ctx context.Context, remote *corev1.PersistentVolumeClaim, size resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	wanted := corev1ac.PersistentVolumeClaim(remote.Name, remote.Namespace).WithUID(remote.UID).WithSpec(
		corev1ac.PersistentVolumeClaimSpec().WithResources(corev1ac.VolumeResourceRequirements().WithRequests(sizeOf(size))))
	result, err := c.opts.Remote.CoreV1().PersistentVolumeClaims(remote.Namespace).Apply(ctx, wanted, forceOptions())
	if err != nil {
		return nil, fmt.Errorf("cannot expand claim %s/%s in the remote cluster: %v", remote.Namespace, remote.Name, err)
	}
	return result, nil
}

// applyHome updates the capacity of the home volume and claim. The claim is last, since
// its capacity says that the resize is done.
func (c *Claims) applyHome(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, size resource.Quantity) error {
	home := c.opts.Home.CoreV1()
	larger := corev1ac.PersistentVolume(volume.Name).WithUID(volume.UID).WithSpec(corev1ac.PersistentVolumeSpec().WithCapacity(sizeOf(size)))
	if _, err := home.PersistentVolumes().Apply(ctx, larger, forceOptions()); err != nil {
		return fmt.Errorf("cannot write the new size of persistentvolume %q: %v", volume.Name, err)
	}
	done := corev1ac.PersistentVolumeClaim(claim.Name, claim.Namespace).WithUID(claim.UID).WithStatus(corev1ac.PersistentVolumeClaimStatus().WithCapacity(sizeOf(size)))
	if _, err := home.PersistentVolumeClaims(claim.Namespace).ApplyStatus(ctx, done, forceOptions()); err != nil {
		return fmt.Errorf("cannot write the new size of persistentvolumeclaim %q: %v", claim.Name, err)
	}
	return nil
}

func sizeOf(size resource.Quantity) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: size}
}

// forceOptions returns the options to apply fields that others have set before: the
// creator of the claim, and the home cluster in its status.
func forceOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: translate.FieldManager, Force: true}
}
