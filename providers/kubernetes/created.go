package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// checkCreated makes sure that a remote pod that was just created can be recognised as the
// pod's: admission in the remote cluster may have removed the labels or the annotation
// that say so. Such a pod is deleted, or nobody would ever find it. The error is
// permanent.
func (p *Provider) checkCreated(ctx context.Context, pod, created *corev1.Pod) error {
	if p.translate.Home.Owns(created) && translate.UIDOf(created) == pod.UID && translate.NameOf(created) == translate.Key(pod) {
		return nil
	}
	if err := p.deleteUnwanted(ctx, unwantedOf(created)); err != nil {
		p.discard(created)
	}
	return errdefs.AsPermanent(fmt.Errorf("admission in the remote cluster has removed or changed labels %s* or annotation %s of the pod, which was deleted there: exempt them from its policy", translate.Prefix, translate.AnnotationName))
}

// unwanted is a remote pod that this process has created, and that is not to be.
type unwanted struct {
	types.NamespacedName
	uid types.UID
}

func unwantedOf(created *corev1.Pod) unwanted {
	return unwanted{types.NamespacedName{Namespace: created.Namespace, Name: created.Name}, created.UID}
}

// discard has a remote pod deleted that this process has created, tried until it works.
func (p *Provider) discard(created *corev1.Pod) {
	p.errands.Add(errand{unwanted: unwantedOf(created)})
}

// deleteUnwanted deletes a remote pod that this process has created, with its own grace
// period, and no other that has taken its name.
func (p *Provider) deleteUnwanted(ctx context.Context, pod unwanted) error {
	err := p.remote.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.uid))})
	if err != nil && !apierror.IsNotFound(err) && !errdefs.IsConflict(err) {
		return fmt.Errorf("cannot delete the pod in the remote cluster that should not have been created: %w", err)
	}
	return nil
}
