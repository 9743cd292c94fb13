// Package admission decides, as a kubelet does, whether a pod may run on the node
// that it is bound to: the scheduler has decided before, but pods may be bound without
// it, two schedulers may not know of each other, and nodes change.
//
// A pod that is rejected is Failed with the kubelet's reasons and messages, so that
// its controller replaces it. What a kubelet does beyond that is not done here: no pod
// is evicted to make room for a critical one, and a resource that the node does not
// name is no limit (a kubelet takes native ones for zero), since many providers say
// nothing of some.
package admission
