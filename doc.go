// Package virtualkubelet holds nothing: it is the root of the module, and the
// place of the tests that hold for all of its packages. Begin with package
// node/nodeutil to write a provider, with cmd/virtual-kubelet to run one.
package virtualkubelet
