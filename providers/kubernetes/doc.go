// Package kubernetes is a provider whose node is another cluster: the pods that
// are bound to it run in a remote cluster, and look at home as if they ran here.
//
// What a pod becomes in the remote cluster is the matter of package translate,
// what it needs there (ConfigMaps, Secrets, tokens) that of package reflection.
// This package connects the two with the remote API server, whose pods, with our
// labels, are all the state that there is: a provider that starts takes up what
// it finds. Only objects with the labels of this cluster and this node, among them the
// UID of the home cluster, are ever changed. README.md says how to run it.
package kubernetes
