// Package controlplane starts a real Kubernetes control plane (etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler) for a test and
// hands it a client config.
//
// The control plane is the binary of the module in the directory controlplane of
// this repository; "make controlplane" builds it. It takes a few seconds to
// start, several run side by side, and none outlives the process that started
// it, not even when that process is killed.
//
// The package starts no node: that is what the test is about.
package controlplane
