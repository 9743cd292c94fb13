// Package eci is a provider that runs pods in Alibaba Cloud Elastic Container Instance:
// each pod is a container group. It is a backend of package podgroup, which has the rules;
// this package has the mapping: of pods to the parameters of the API, and of what the API
// reports to units.
//
// It keeps no state of its own. The tags of a container group identify the pod, the
// node and the cluster that it belongs to; a group without them is ignored.
//
// The package reads no environment: Config.Merge takes the values of environment variables
// from a function. Errors and logs contain no secrets of the configuration or of pods.
package eci
