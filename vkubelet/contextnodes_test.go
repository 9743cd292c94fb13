package vkubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// contextNodes remembers the context of the last patch.
type contextNodes struct {
	corev1client.NodeInterface
	patched context.Context
}

func (n *contextNodes) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error) {
	n.patched = ctx
	return n.NodeInterface.Patch(ctx, name, kind, data, opts, subresources...)
}
