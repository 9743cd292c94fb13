package kubernetes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// UpdatePod implements node.PodLifecycleHandler. The remote pod says what was asked
// for once all of it was, so that an update that is cut off is made again.
func (p *Provider) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	if err := p.reflector.Follow(ctx, pod); err != nil {
		return fmt.Errorf("cannot reflect what the pod needs into the remote cluster: %v", err)
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		remote, err := p.find(ctx, pod.Namespace, pod.Name, pod.UID)
		for _, update := range []func(_ context.Context, pod, remote *corev1.Pod) (*corev1.Pod, error){p.updateEphemeral, p.updateResources, p.updateFields} {
			if err != nil {
				return err
			}
			remote, err = update(ctx, pod, remote)
		}
		return err
	})
}

func (p *Provider) updateEphemeral(ctx context.Context, pod, remote *corev1.Pod) (*corev1.Pod, error) {
	known := map[string]bool{}
	for _, c := range remote.Spec.EphemeralContainers {
		known[c.Name] = true
	}
	before := len(known)
	for _, c := range p.translate.EphemeralContainers(pod) {
		if !known[c.Name] {
			remote.Spec.EphemeralContainers = append(remote.Spec.EphemeralContainers, c)
		}
	}
	if len(remote.Spec.EphemeralContainers) == before {
		return remote, nil
	}
	return p.remote.CoreV1().Pods(remote.Namespace).UpdateEphemeralContainers(ctx, remote.Name, remote, metav1.UpdateOptions{FieldManager: translate.FieldManager})
}

func (p *Provider) updateResources(ctx context.Context, pod, remote *corev1.Pod) (*corev1.Pod, error) {
	if !p.translate.Resize(pod, remote) {
		return remote, nil
	}
	return p.remote.CoreV1().Pods(remote.Namespace).UpdateResize(ctx, remote.Name, remote, metav1.UpdateOptions{FieldManager: translate.FieldManager})
}

func (p *Provider) updateFields(ctx context.Context, pod, remote *corev1.Pod) (*corev1.Pod, error) {
	if !p.translate.Update(pod, remote) {
		return remote, nil
	}
	return p.remote.CoreV1().Pods(remote.Namespace).Update(ctx, remote, metav1.UpdateOptions{FieldManager: translate.FieldManager})
}
