// Package claims provisions volumes of the remote cluster for claims of the home
// cluster.
//
// It is the provisioner of the home storage classes that the configuration maps to
// remote ones. A claim of such a class that the scheduler has placed on this node, or
// that one of its pods refers to, gets a claim in the remote cluster and a
// PersistentVolume at home, which stands for the remote claim. That PersistentVolume is
// all the state there is: it names the remote claim, is bound to the home claim like
// any other, and decides what becomes of the data once that is deleted.
//
// A remote claim outlives pods, as the home claim does, and grows with it. It is
// deleted only if its PersistentVolume is released, has the reclaim policy Delete, and
// the remote claim has the labels of this cluster and node.
package claims
