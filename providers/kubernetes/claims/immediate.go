package claims

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// storageProvisioner is where the home cluster says who is to give a claim a volume:
// of a class that does not wait for a pod, before it is known for which node.
const storageProvisioner = "volume.kubernetes.io/storage-provisioner"

// isImmediate tells whether the home cluster waits for a volume, and no node was
// selected.
func (c *Claims) isImmediate(claim *corev1.PersistentVolumeClaim) bool {
	_, mapped := c.opts.Classes[classOf(claim)]
	return mapped && claim.Annotations[storageProvisioner] == Provisioner && claim.Annotations[selectedNode] == ""
}

// provisionImmediate gives such a claim a volume here if its class names this node and
// no other. If it names none at all, an event says that the claim waits for ever.
func (c *Claims) provisionImmediate(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class, err := c.class(ctx, claim)
	switch {
	case err != nil:
		return err
	case ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingImmediate:
		return nil // the scheduler selects another node
	}
	switch nodes := nodesOf(class); {
	case len(nodes) != 1:
		return notSupported("storage class %q has volumeBindingMode Immediate, and of its nodes it is not known which is to have the volume: use one with WaitForFirstConsumer, or whose allowedTopologies name one node by %s", class.Name, corev1.LabelHostname)
	case nodes[0] != c.opts.Translate.Home.Node:
		return nil
	}
	return c.provision(ctx, claim)
}

// nodesOf are the nodes that a storage class names.
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
