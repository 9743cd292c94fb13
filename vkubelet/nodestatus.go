package vkubelet

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// UpdateNodeStatus writes the status of the given node to the API's node of the
// same name, and returns the API's node after that. What controllers write into
// a node's status is kept: conditions of types that the given node does not
// have, and the attached volumes. A node that does not exist is an error of
// class NotFound. A Node does that by itself; this is for those that run a node
// without one.
func UpdateNodeStatus(ctx context.Context, nodes corev1client.NodeInterface, obj *corev1.Node) (*corev1.Node, error) {
	if obj == nil || obj.Name == "" {
		return nil, errdefs.InvalidInput("the node whose status is to be written has no name: set metadata.name")
	}
	current, err := nodes.Get(ctx, obj.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot get node %s: %w", obj.Name, err)
	}
	next := current.DeepCopy()
	next.Status = *obj.Status.DeepCopy()
	for _, condition := range current.Status.Conditions {
		same := func(c corev1.NodeCondition) bool { return c.Type == condition.Type }
		if !slices.ContainsFunc(next.Status.Conditions, same) {
			next.Status.Conditions = append(next.Status.Conditions, condition)
		}
	}
	if next.Status.VolumesAttached == nil {
		next.Status.VolumesAttached = current.Status.VolumesAttached
	}
	result, _, err := patchNodeStatus(ctx, nodes, types.NodeName(obj.Name), current, next)
	return result, err
}

// PatchNodeStatus writes what differs between oldNode and newNode to the status
// of the named node, and returns the API's node after that, and the patch. What
// is the same in both, or in neither, is left as the API has it. Differences in
// labels and annotations are written too, those of the spec are not.
func PatchNodeStatus(nodes corev1client.NodeInterface, nodeName types.NodeName, oldNode, newNode *corev1.Node) (*corev1.Node, []byte, error) {
	return patchNodeStatus(context.Background(), nodes, nodeName, oldNode, newNode)
}

func patchNodeStatus(ctx context.Context, nodes corev1client.NodeInterface, nodeName types.NodeName, oldNode, newNode *corev1.Node) (*corev1.Node, []byte, error) {
	if oldNode == nil || newNode == nil {
		return nil, nil, errdefs.InvalidInputf("the status of node %s cannot be patched: both the old and the new node are required", nodeName)
	}
	if len(oldNode.Status.Addresses) == 0 && len(newNode.Status.Addresses) > 0 {
		// The API merges addresses by type, of which there can be two. The
		// helper replaces them as a whole where there were some before.
		oldNode = oldNode.DeepCopy()
		oldNode.Status.Addresses = []corev1.NodeAddress{{}}
	}
	client := &patchClient{NodeInterface: nodes, ctx: ctx}
	result, patch, err := nodeutil.PatchNodeStatus(client, nodeName, oldNode, newNode)
	if client.err != nil { // the helper does not wrap it
		return nil, nil, fmt.Errorf("cannot patch the status of node %s: %w", nodeName, client.err)
	}
	return result, patch, err
}

// patchClient is a client with just the one method that the helper asks it for.
// It brings in the context and brings out the error.
type patchClient struct {
	corev1client.CoreV1Interface
	corev1client.NodeInterface
	ctx context.Context
	err error
}

// Nodes implements CoreV1Interface.
func (c *patchClient) Nodes() corev1client.NodeInterface { return c }

// Patch implements NodeInterface.
func (c *patchClient) Patch(_ context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error) {
	result, err := c.NodeInterface.Patch(c.ctx, name, kind, data, opts, subresources...)
	c.err = err
	return result, err
}
