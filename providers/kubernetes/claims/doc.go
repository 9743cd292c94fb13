// Package claims gives claims at home volumes of the remote cluster.
//
// It is the provisioner of the storage classes at home that are mapped to remote
// ones: a claim of such a class that the scheduler has placed on this node, or
// that a pod on it names, gets a claim in the remote cluster, and at home a
// PersistentVolume that stands for that. The PersistentVolume is all the state
// there is; it names the remote claim, binds to the claim at home as any other,
// and decides what becomes of the data when that goes.
//
// The remote claim is the pod's no more than the claim at home is: it outlives
// pods. It grows with the claim at home. It is deleted when its PersistentVolume is released, with the reclaim
// policy Delete, and has the labels of this cluster and node; never otherwise.
package claims
