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

// takeBack removes from a remote pod the labels and annotations that home has
// removed while no provider ran. The node has it updated for what it lacks, but cannot
// tell these from what others have added there.
func (p *Provider) takeBack(ctx context.Context, uid types.UID) error {
	for _, remote := range p.heardOf(uid) {
		local := p.local(remote)
		if local == nil || !p.translate.MetadataRemoved(local, remote) {
			continue
		}
		if !p.mayBegin() {
			p.errands.AddAfter(errand{uid: uid, takeBack: true}, claimInterval)
			continue
		}
		_, err := p.updateFields(ctx, local, remote)
		switch {
		case apierrors.IsConflict(err) || apierror.IsNotFound(err):
			// What has come of it is heard of, and looked at, next.
		case err != nil:
			err = fmt.Errorf("cannot remove labels or annotations from the pod in the remote cluster: %w", err)
			p.event(local, corev1.EventTypeWarning, node.ReasonProviderUpdateFailed, err.Error())
			return err
		}
	}
	return nil
}
