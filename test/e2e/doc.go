// Package e2e is the end-to-end suite for virtual nodes: it runs against a real
// cluster in which a virtual kubelet has registered a node, with any
// provider. A provider's repository runs it from a test of its own:
//
//	func TestEndToEnd(t *testing.T) {
//		e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{
//			Kubeconfig: kubeconfig,
//			NodeName:   "my-virtual-node",
//		}).Run(t)
//	}
//
// Each test creates pods of its own, with names that the API server chooses,
// bound to the node and with a toleration for every taint, and removes them in
// the end. The account needs the right to create, watch and delete pods,
// ConfigMaps and Secrets in the namespace, to watch events there, and to get
// nodes, nodes/proxy and the node subresources behind it. The namespace exists
// already and has its default service account.
//
// Nothing is waited for by sleeping; nothing is waited for longer than
// WatchTimeout.
package e2e
