package volume

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Claims reads persistent volume claims and what they are bound to. Client is
// one. An object that does not exist is an error of class NotFound.
type Claims interface {
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// place is where a claimed volume was found.
type place struct {
	path     string
	readOnly bool
	// host says that it is a path of the host, persistentVolume the one that it is of.
	host             bool
	persistentVolume string
	local            bool // a local volume
}

// claimed finds the volume of a claim: one that is a path of this host.
func (m *Manager) claimed(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (place, error) {
	claim := v.PersistentVolumeClaim
	pv, err := m.boundVolume(ctx, pod.Namespace, claim.ClaimName)
	if err != nil {
		return place{}, err
	}
	if err := m.checkNodeAffinity(ctx, pv); err != nil {
		return place{}, err
	}
	found := place{readOnly: claim.ReadOnly, host: true, persistentVolume: pv.Name}
	access := HostAccess{Pod: pod, Volume: v.Name, PersistentVolume: pv.Name}
	switch {
	case pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return place{}, unsupportedClaim(v, "block device")
	case pv.Spec.HostPath != nil:
		access.Path = pv.Spec.HostPath.Path
		if found.path, err = m.resolveHostPath(access); err == nil {
			err = checkHostPath(found.path, pv.Spec.HostPath.Type)
		}
	case pv.Spec.Local != nil:
		found.local, access.Path = true, pv.Spec.Local.Path
		if found.path, err = m.resolveHostPath(access); err == nil {
			err = m.setUpLocal(ctx, pod, v, found)
		}
	default:
		return place{}, unsupportedClaim(v, cmp.Or(sourceKind(pv.Spec.PersistentVolumeSource), "unknown"))
	}
	return found, err
}

// boundVolume returns the PersistentVolume that a claim is bound to.
func (m *Manager) boundVolume(ctx context.Context, namespace, name string) (*corev1.PersistentVolume, error) {
	pvc, err := m.opts.Claims.PersistentVolumeClaim(ctx, namespace, name)
	switch {
	case errdefs.IsNotFound(err):
		return nil, fmt.Errorf("persistentvolumeclaim %q not found", name)
	case err != nil:
		return nil, fmt.Errorf("failed to read persistentvolumeclaim %q: %w", namespace+"/"+name, err)
	case pvc.DeletionTimestamp != nil:
		return nil, fmt.Errorf("persistentvolumeclaim %q is being deleted", name)
	case pvc.Spec.VolumeName == "" || pvc.Status.Phase != corev1.ClaimBound:
		return nil, fmt.Errorf("persistentvolumeclaim %q is not bound yet", name)
	}
	pv, err := m.opts.Claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("failed to read persistentvolume %q: %w", pvc.Spec.VolumeName, aside(err))
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return nil, fmt.Errorf("persistentvolume %q is bound to another claim than %q", pv.Name, name)
	}
	return pv, nil
}

// checkNodeAffinity returns an error if a volume is one of other nodes: what has its path here is another one.
func (m *Manager) checkNodeAffinity(ctx context.Context, pv *corev1.PersistentVolume) error {
	if m.opts.NodeLabels == nil || pv.Spec.NodeAffinity == nil {
		return nil
	}
	labels, err := m.opts.NodeLabels(ctx)
	if err != nil {
		return &affinityError{pv.Name, fmt.Errorf("error retrieving node: %w", aside(err))}
	}
	if err := volumehelpers.CheckNodeAffinity(pv, labels); err != nil {
		return &affinityError{pv.Name, err}
	}
	return nil
}

func unsupportedClaim(v *corev1.Volume, what string) error {
	return errdefs.AsPermanent(Unsupported{v.Name, "persistentVolumeClaim (" + what + ")"})
}
