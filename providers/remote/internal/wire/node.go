package wire

// NodeKey is the key of the metadata of each call that has the name of the node.
const NodeKey = "node-name"

// ClusterKey is that of the UID of its cluster's kube-system, if the caller may read it.
const ClusterKey = "cluster-uid"
