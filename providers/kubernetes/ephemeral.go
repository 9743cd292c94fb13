package kubernetes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// addEphemeralLater queues a home pod whose remote pod was just created, or is adopted, if
// it has ephemeral containers already: they are added to pods that exist, and to the pod
// controller the whole pod is applied.
func (p *Provider) addEphemeralLater(pod *corev1.Pod) {
	if len(pod.Spec.EphemeralContainers) > 0 {
		p.queue.Add(workItem{uid: pod.UID, ephemeralOf: translate.Key(pod)})
	}
}

// addEphemeral adds the ephemeral containers to a remote pod that it does not have.
func (p *Provider) addEphemeral(ctx context.Context, name types.NamespacedName, uid types.UID) error {
	local := p.localPod(name, uid)
	if local == nil || local.DeletionTimestamp != nil || ended(local) {
		return nil
	}
	if !p.mayBegin() {
		p.queue.AddAfter(workItem{uid: uid, ephemeralOf: name}, mayBeginInterval)
		return nil
	}
	remote, err := p.find(ctx, name.Namespace, name.Name, uid)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = p.addMissingEphemeral(ctx, local, remote)
	}
	if err != nil && ctx.Err() == nil && !errdefs.IsConflict(err) {
		p.recordEvent(local, corev1.EventTypeWarning, node.ReasonProviderUpdateFailed, err.Error())
		if p.service != nil && errors.Is(err, errNoSubresource) {
			return nil // and it will have none
		}
	}
	return err
}

func (p *Provider) addMissingEphemeral(ctx context.Context, local, remote *corev1.Pod) error {
	if len(translate.MissingEphemeral(local, remote)) == 0 {
		return nil // an update has added them
	}
	pod, err := p.resolveEnvironment(ctx, local, remote)
	if err != nil {
		return fmt.Errorf("cannot resolve the environment of the pod: %w", err)
	}
	if err := p.registerUpdated(ctx, pod, remote); err != nil {
		return err
	}
	if _, err := p.updateEphemeral(ctx, pod, remote); err != nil {
		return fmt.Errorf("cannot add ephemeral containers to the pod in the remote cluster: %w", err)
	}
	return nil
}
