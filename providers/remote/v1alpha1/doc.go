// Package v1alpha1 is the protocol between a virtual kubelet and a provider that is a
// process of its own. The comments of provider.proto are its reference; generate.sh makes
// the Go code of it.
package v1alpha1
