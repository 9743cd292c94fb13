package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// removeMetadata removes labels and annotations from a remote pod that home has removed
// while no provider was running. The pod controller requests an update for missing
// ones, but cannot distinguish removed ones from those that others have added.
func (p *Provider) removeMetadata(ctx context.Context, uid types.UID) error {
	for _, remote := range p.observedPods(uid) {
		local := p.homePod(remote)
		if local == nil || !p.translate.MetadataRemoved(local, remote) {
			continue
		}
		if !p.mayBegin() {
			p.queue.AddAfter(workItem{uid: uid, removeMetadata: true}, mayBeginInterval)
			continue
		}
		_, err := p.updateFields(ctx, local, remote, p.translate.UpdateFields)
		switch {
		case apierrors.IsConflict(err) || apierror.IsNotFound(err):
			// The watch will show the change, which queues the pod again.
		case err != nil:
			err = fmt.Errorf("cannot remove labels or annotations from the pod in the remote cluster: %w", err)
			p.recordEvent(local, corev1.EventTypeWarning, node.ReasonProviderUpdateFailed, err.Error())
			return err
		}
	}
	return nil
}
