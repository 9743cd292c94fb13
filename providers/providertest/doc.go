// Package providertest is the conformance kit for providers: it runs a node with
// a provider on a real control plane, in the process of the test, and checks what
// users of Kubernetes expect of its pods. A provider's test is
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, newProvider, providertest.Commands, providertest.Logs, providertest.Exec)
//	}
//
// where newProvider is what nodeutil.NewNode takes. The checks of the core are
// made of every provider; those that need a capability only where it is declared,
// and skipped otherwise, each by its name. What is declared has to work: a
// provider that says that it cannot do it fails. A [Suite] has further options:
// another cluster, another image, checks to be left out.
//
// The control plane is the binary of the directory controlplane of the repository of
// Virtual Kubelet, which "make controlplane" builds; it is looked for on the PATH.
// Suite.Config takes any other cluster.
//
// The checks are made side by side, as many as go test -parallel says. Most of
// their time is waiting, so that more than the default is good.
//
// The same checks, but those that restart the node, can be made of a node that
// runs already: virtual-kubelet conformance --help.
package providertest
