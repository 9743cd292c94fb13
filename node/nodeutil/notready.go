package nodeutil

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// podsNotReadyTimeout bounds how long it takes to write at the end of a node that
	// its pods are not ready.
	podsNotReadyTimeout = 5 * time.Second
	// podsNotReadyWriters is how many of them are written at the same time.
	podsNotReadyWriters = 10
)

// markPodsNotReady marks the pods of a node that is not ready any more as not ready, as the control plane does for a node whose lease has expired. The
// next process corrects it.
func (n *Node) markPodsNotReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), podsNotReadyTimeout)
	defer cancel()
	var writing errgroup.Group
	writing.SetLimit(podsNotReadyWriters)
	owns := n.podFilter()
	for _, pod := range n.known.List() {
		if !owns(ctx, pod) || !isReady(pod) {
			continue
		}
		writing.Go(func() error { return n.markPodNotReady(ctx, pod) })
	}
	if err := writing.Wait(); err != nil {
		log.G(ctx).WithError(err).Warn("Cannot mark all pods of a node that ends as not ready")
	}
}

// isReady reports whether the pod's status is ready.
func isReady(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (n *Node) markPodNotReady(ctx context.Context, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "reason": "NodeNotReady", "lastTransitionTime": metav1.Now(),
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode the Ready condition of a pod: %w", err)
	}
	_, err = n.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
