// Package eci is a provider that runs pods in Alibaba Cloud Elastic Container
// Instance: each pod is a container group.
//
// It keeps no state of its own. The tags of a container group say which pod of
// which node of which cluster it is, and a group without them is nobody's here.
// One listing of the groups with the tags of the node, kept for a moment, answers
// all questions about pods; what was created or deleted since is put on top of it,
// since a listing may be older than the call before it.
//
// The files of volumes follow the objects that they are of, and tokens are renewed:
// one queue has each pod looked at when an object has changed, and when it is due,
// and one UpdateContainerGroup is sent if a file is another than what was given.
//
// ToCreateRequest makes the request for a pod, and touches nothing: what ECI
// cannot do is found there, before anything is created.
//
// The package reads no environment and no files: Config.Merge takes the values of
// environment variables from a function. Secrets of the configuration and of pods
// are in no error and no log.
package eci
