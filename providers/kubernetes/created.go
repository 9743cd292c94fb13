package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// checkCreated checks that a remote pod that was just created has the labels and the
// annotation of its home pod: admission in the remote cluster may have removed them.
// Such a pod is deleted, since the provider could not find it later. The error is
// permanent.
func (p *Provider) checkCreated(ctx context.Context, pod, created *corev1.Pod) error {
	hasName := created.Annotations[translate.AnnotationName] == pod.Name // NameOf does without the annotation
	if p.isOf(pod.UID, created) && hasName && translate.NameOf(created) == translate.Key(pod) {
		return nil
	}
	if err := p.deleteUnwanted(ctx, unwantedOf(created)); err != nil {
		p.deleteLater(created)
	}
	return errdefs.AsPermanent(fmt.Errorf("admission in the remote cluster has removed or changed labels %s* or annotation %s of the pod, which was deleted there: exempt them from its policy", translate.Prefix, translate.AnnotationName))
}

// unwanted identifies a remote pod that this process has created and that must be
// deleted.
type unwanted struct {
	types.NamespacedName
	uid types.UID
}

func unwantedOf(created *corev1.Pod) unwanted {
	return unwanted{types.NamespacedName{Namespace: created.Namespace, Name: created.Name}, created.UID}
}

// deleteLater deletes a remote pod that this process has created, and retries until
// that succeeds.
func (p *Provider) deleteLater(created *corev1.Pod) {
	p.queue.Add(workItem{unwanted: unwantedOf(created)})
}

// deleteUnwanted deletes a remote pod that this process has created, with its own grace
// period. The UID makes sure that it is not another pod of the same name.
func (p *Provider) deleteUnwanted(ctx context.Context, pod unwanted) error {
	err := p.remote.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.uid))})
	if err != nil && !apierror.IsNotFound(err) && !errdefs.IsConflict(err) {
		return fmt.Errorf("cannot delete the pod in the remote cluster that should not have been created: %w", err)
	}
	return nil
}
