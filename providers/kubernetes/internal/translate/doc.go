// Package translate converts home pods to remote pods, and the status of remote pods to
// that of home pods. It only computes: the callers write, and create the objects that a
// pod refers to.
//
// A home object is one of the home cluster, whose control plane runs the virtual node.
// The remote cluster runs its pods.
package translate
