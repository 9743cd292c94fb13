package interlink

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// AnnotationSender is the annotation of a pod with the process that has sent its creation last, or was
// about to: the next one does not know what has become of it.
const AnnotationSender = "interlink.virtual-kubelet.io/sender"

// recordTimeout is how long the API server may take for the annotation.
const recordTimeout = 10 * time.Second

// recordSender annotates a pod whose creation is about to be sent. It patches the pod's status, since a
// node may not patch the pod.
func (b *backend) recordSender(ctx context.Context, pod *corev1.Pod) error {
	if b.cluster == nil || pod.Annotations[AnnotationSender] == b.process {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]string{AnnotationSender: b.process}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	_, err = b.cluster.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // nobody creates a pod that is gone again
		return nil
	}
	return errdefs.AsUnavailable(fmt.Errorf("cannot annotate the pod before its creation is sent: %w", err))
}

// sentByAnother reports whether an earlier process may have sent the creation of a pod.
func (b *backend) sentByAnother(pod *corev1.Pod) bool {
	sender := pod.Annotations[AnnotationSender]
	return sender != "" && sender != b.process
}
