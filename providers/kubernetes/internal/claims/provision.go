package claims

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// finalizer keeps a volume until its remote claim is deleted.
const finalizer = translate.Prefix + "remote-claim"

// provisionedBy is the annotation with the provisioner that deletes a volume.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// provision creates the remote claim and the home volume of a claim that has no volume.
// It is idempotent.
func (c *Claims) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := c.classFor(ctx, claim)
	if err != nil {
		return err
	}
	namespace, err := c.opts.Translate.Namespaces.Remote(claim.Namespace)
	if err != nil {
		return err
	}
	at := types.NamespacedName{Namespace: namespace, Name: c.opts.Translate.ClaimName(claim)}
	if err := c.opts.EnsureNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := c.createRemote(ctx, claim, at); err != nil {
		return err
	}
	volume := c.newVolume(claim, class, at)
	_, err = c.opts.Home.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{FieldManager: translate.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot create persistentvolume %q: %v", volume.Name, err)
	}
	c.opts.RecordEvent(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", fmt.Sprintf("The volume is claim %s of the remote cluster", at))
	return nil
}

func (c *Claims) createRemote(ctx context.Context, claim *corev1.PersistentVolumeClaim, at types.NamespacedName) error {
	remotes := c.opts.Remote.CoreV1().PersistentVolumeClaims(at.Namespace)
	wanted := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace, Name: at.Name,
			Labels:      c.opts.Translate.Home.LabelsOf(claim.Namespace, claim.UID),
			Annotations: map[string]string{translate.AnnotationName: claim.Name},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: claim.Spec.AccessModes,
			VolumeMode:  claim.Spec.VolumeMode,
			Resources:   claim.Spec.Resources,
		},
	}
	if class := c.opts.Classes[classOf(claim)]; class != "" {
		wanted.Spec.StorageClassName = &class
	}
	_, err := remotes.Create(ctx, wanted, metav1.CreateOptions{FieldManager: translate.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("cannot create claim %s in the remote cluster: %v", at, err)
		}
		return nil
	}
	found, err := remotes.Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("cannot read claim %s in the remote cluster: %v", at, err)
	case !c.opts.Translate.Home.Owns(found) || translate.UIDOf(found) != claim.UID:
		return errdefs.AsConflict(c.opts.Translate.Home.NameConflict("PersistentVolumeClaim", found))
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("claim %s in the remote cluster is being deleted", at)
	}
	return nil
}

// newVolume returns the PersistentVolume that stands for a remote claim. Its node affinity
// is this node.
func (c *Claims) newVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, at types.NamespacedName) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimRetain
	var finalizers []string
	if c.opts.Delete && ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete) == corev1.PersistentVolumeReclaimDelete {
		policy, finalizers = corev1.PersistentVolumeReclaimDelete, []string{finalizer}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        volumeName(claim.UID),
			Labels:      c.opts.Translate.Home.NodeLabels(),
			Annotations: map[string]string{provisionedBy: Provisioner},
			Finalizers:  finalizers,
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: policy,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: Provisioner, VolumeHandle: at.String(),
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{c.opts.Translate.Home.Node},
				}},
			}}}},
		},
	}
}

// volumeName returns the name of the volume of a claim.
func volumeName(claim types.UID) string { return "pvc-" + string(claim) }

// remoteClaimOf returns the remote claim of a volume, or false if the volume has
// another driver.
func remoteClaimOf(volume *corev1.PersistentVolume) (types.NamespacedName, bool) {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != Provisioner {
		return types.NamespacedName{}, false
	}
	namespace, name, ok := strings.Cut(volume.Spec.CSI.VolumeHandle, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
