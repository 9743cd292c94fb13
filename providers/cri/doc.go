// Package cri runs pods with a container runtime that speaks the CRI, such as
// containerd or CRI-O: it is the pod engine (package podengine) over
// k8s.io/cri-client. It is for machines that have a container runtime and want no
// kubelet; the pods are as on a kubelet.
package cri
