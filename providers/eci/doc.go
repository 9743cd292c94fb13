// Package eci is a provider that runs pods in Alibaba Cloud Elastic Container Instance:
// each pod is a container group.
//
// It keeps no state of its own. The tags of a container group identify the pod, the
// node and the cluster that it belongs to; a group without them is ignored. One listing
// of the groups with the tags of the node, cached for a moment, answers all questions
// about pods. Groups that were created or deleted since are merged into it, since a
// listing may be older than the call before it.
//
// The files of volumes are updated when their objects change, and tokens are renewed:
// one queue has each pod when an object has changed and when it is due, and sends one
// UpdateContainerGroup if a file differs from what was last applied.
//
// ToCreateRequest builds the request for a pod without any I/O: features that ECI does
// not have are found there, before anything is created.
//
// The package reads no environment and no files: Config.Merge takes the values of
// environment variables from a function. Errors and logs contain no secrets of the
// configuration or of pods.
package eci
