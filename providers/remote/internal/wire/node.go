package wire

// NodeKey is the key of the metadata of each call that has the name of the node.
const NodeKey = "node-name"
