// Package kubernetes is a provider that runs the pods of its node in a remote cluster.
//
// Package translate converts home pods to remote pods and back. Package reflection
// copies what pods need to the remote cluster (ConfigMaps, Secrets, tokens), package
// claims their volumes, package services the Services that they reach by name. This
// package connects these with the remote API server, whose pods, with the labels of
// this node, are all the state there is: a provider that starts adopts what it finds.
// It only changes objects with the labels of this cluster and node, which include the
// UID of the home cluster. README.md says how to run it.
//
// NewForService makes it the provider of a cloud service that has the API of Kubernetes for
// its tenants, such as package huaweicci.
package kubernetes
