// Package podenv resolves the environment of a pod's containers, as the kubelet
// documents it: service links, envFrom, env with all of its sources, and $(VAR)
// references, in command and args too. A provider then gets plain names and
// values.
//
// The package only computes: it reads objects through a Source, and returns
// what a person must know as Problems, for others to make events of. Where an
// object may be read, and when to try again, is the caller's matter.
package podenv
