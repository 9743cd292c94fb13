package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/util/retry"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// errNoSubresource is the error of a service, or an older remote cluster, that has no
// subresource for a patch.
var errNoSubresource = errors.New("there is no such subresource")

// UpdatePod implements node.PodLifecycleHandler. The last patch records what was
// applied, so that an update that is interrupted is repeated.
func (p *Provider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	if err := p.ensureIdentified(ctx); err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		remote, err := p.find(ctx, pod.Namespace, pod.Name, pod.UID)
		if err == nil {
			err = p.registerUpdated(ctx, pod, remote)
		}
		if err != nil {
			return err
		}
		return p.updateParts(ctx, pod, remote)
	})
}

// updateParts updates all parts of a remote pod that can change. A part that is refused
// does not keep the others from being updated.
func (p *Provider) updateParts(ctx context.Context, pod, remote *corev1.Pod) error {
	remote, ephemeral := p.updateEphemeral(ctx, pod, remote)
	if !isOfThePart(ephemeral) {
		return ephemeral
	}
	remote, resize := p.updateResources(ctx, pod, remote)
	if !isOfThePart(resize) {
		return resize
	}
	apply := p.translate.UpdateFields
	isFinal := p.service != nil && errors.Is(resize, errNoSubresource) // a cluster may be upgraded
	if resize != nil && !isFinal {
		apply = p.translate.UpdateFieldsUnresized
	}
	_, fields := p.updateFields(ctx, pod, remote, apply)
	if !isOfThePart(fields) {
		return fields
	}
	err := errors.Join(ephemeral, resize, fields)
	if p.service != nil && errors.Is(err, errNoSubresource) {
		return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: the service updates labels and annotations, and no more of a pod that runs: %v", err))
	}
	return err
}

// isOfThePart reports whether an error of an update of one part, which may be nil, says
// nothing about the others: the part is refused.
func isOfThePart(err error) bool {
	return err == nil || apierrors.IsForbidden(err) || apierror.IsRejected(err) || errors.Is(err, errNoSubresource) || errors.Is(err, translate.ErrUnresolved)
}

// registerUpdated writes what the remote pod needs, and what the ephemeral containers do that
// it is to get.
func (p *Provider) registerUpdated(ctx context.Context, pod, remote *corev1.Pod) error {
	next := remote.DeepCopy()
	missing, _ := p.translate.EphemeralContainers(pod, remote) // updateEphemeral returns the error
	next.Spec.EphemeralContainers = append(next.Spec.EphemeralContainers, missing...)
	if err := p.reflector.RegisterPod(ctx, pod, next); err != nil {
		return fmt.Errorf("cannot copy what the pod needs to the remote cluster: %v", err)
	}
	return nil
}

// updateEphemeral adds the ephemeral containers that the remote pod lacks. It returns the
// remote pod as it is then, also with an error, as does updateResources.
func (p *Provider) updateEphemeral(ctx context.Context, pod, remote *corev1.Pod) (*corev1.Pod, error) {
	missing, unresolved := p.translate.EphemeralContainers(pod, remote)
	if len(missing) == 0 {
		return remote, unresolved
	}
	next := remote.DeepCopy()
	next.Spec.EphemeralContainers = append(next.Spec.EphemeralContainers, missing...)
	updated, err := p.patch(ctx, remote, next, "ephemeralcontainers")
	if err != nil {
		return remote, err
	}
	return updated, unresolved
}

func (p *Provider) updateResources(ctx context.Context, pod, remote *corev1.Pod) (*corev1.Pod, error) {
	next := remote.DeepCopy()
	if !p.translate.UpdateResources(pod, next) {
		return remote, nil
	}
	updated, err := p.patch(ctx, remote, next, "resize")
	if err != nil {
		return remote, err
	}
	return updated, nil
}

// updateFields updates what apply changes of the remote pod.
func (p *Provider) updateFields(ctx context.Context, pod, remote *corev1.Pod, apply func(pod, remote *corev1.Pod) bool) (*corev1.Pod, error) {
	next := remote.DeepCopy()
	if !apply(pod, next) {
		return remote, nil
	}
	return p.patch(ctx, remote, next)
}

// patch sends the difference between two states of a remote pod, guarded by the UID and
// resourceVersion of the first. An update of the whole pod would lack fields of an API
// server newer than this client, which would refuse it as a change of them.
func (p *Provider) patch(ctx context.Context, was, is *corev1.Pod, subresources ...string) (*corev1.Pod, error) {
	was = was.DeepCopy()
	was.UID, was.ResourceVersion = "", "" // so that the patch has them
	before, err := json.Marshal(was)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the remote pod: %w", err)
	}
	after, err := json.Marshal(is)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the changed remote pod: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("cannot compute a patch of the remote pod: %w", err)
	}
	patched, err := p.remote.CoreV1().Pods(is.Namespace).Patch(ctx, is.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: translate.FieldManager}, subresources...)
	if len(subresources) > 0 && apierrors.IsNotFound(err) { // or the pod is gone, which the next patch or update finds
		return nil, fmt.Errorf("pods/%s: %w: %v", subresources[0], errNoSubresource, err)
	}
	return patched, apierror.OrUnavailable(err)
}
