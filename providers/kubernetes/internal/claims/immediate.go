package claims

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// storageProvisioner is the annotation with the provisioner from which the home cluster
// awaits a volume. With volumeBindingMode Immediate it is set before a node is
// selected.
const storageProvisioner = "volume.kubernetes.io/storage-provisioner"

// isImmediate reports whether a claim awaits a volume of this provisioner and has no
// selected node.
func (c *Claims) isImmediate(claim *corev1.PersistentVolumeClaim) bool {
	_, mapped := c.opts.Classes[classOf(claim)]
	return mapped && claim.Annotations[storageProvisioner] == Provisioner && claim.Annotations[selectedNode] == ""
}

// provisionImmediate provisions a claim with volumeBindingMode Immediate if its class
// names this node and no other. If the class does not name exactly one node, the claim
// can never get a volume, and the error says so.
func (c *Claims) provisionImmediate(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := c.classFor(ctx, claim)
	switch {
	case err != nil:
		return err
	case ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingImmediate:
		return nil // the scheduler will select a node
	}
	switch nodes := nodesOf(class); {
	case len(nodes) != 1:
		return notSupportedError("storage class %q has volumeBindingMode Immediate, and of its nodes it is not known which is to have the volume: use one with WaitForFirstConsumer, or whose allowedTopologies name one node by %s", class.Name, corev1.LabelHostname)
	case nodes[0] != c.opts.Translate.Home.Node:
		return nil
	}
	return c.provision(ctx, claim)
}

// nodesOf returns the nodes that a storage class names.
func nodesOf(class *storagev1.StorageClass) (nodes []string) {
	for _, term := range class.AllowedTopologies {
		for _, label := range term.MatchLabelExpressions {
			if label.Key == corev1.LabelHostname {
				nodes = append(nodes, label.Values...)
			}
		}
	}
	return nodes
}
