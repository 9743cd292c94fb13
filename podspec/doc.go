// Package podspec says what a pod means, for programs that run its containers: its
// host name, /etc/hosts and resolv.conf, its QoS class and OOM scores, what it
// requests in all, how long it may take to stop; and the way back, from what
// became of the containers to the pod's status.
//
// Everything in it is computed from the arguments. Reading ConfigMaps and files,
// calling a runtime and keeping time is left to others: the contents of volumes
// to podspec/volume, containers to podengine.
package podspec
