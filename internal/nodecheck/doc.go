// Package nodecheck checks what a virtual node does, as it is seen through the
// API server: with client-go alone, on any cluster, with any provider.
//
// A [Check] is a name, what it needs of the provider, and a function. Each makes
// pods of its own on the node, and removes them in the end. Nothing is waited for
// by sleeping, and nothing longer than the check may take. What fails says what
// was seen: the pod's phase, the states of its containers, its events.
//
// The package knows no flags, no files, and not package testing: test/e2e,
// providers/providertest and the command "virtual-kubelet conformance" are its
// users, and have that.
package nodecheck
