// Command controlplane is a real Kubernetes control plane in one binary: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, for the
// quickstart, the tests and the benchmarks of Virtual Kubelet.
//
// "controlplane up" is the supervisor. It makes the certificates, starts each
// component as a child process of the same binary ("controlplane
// kube-apiserver ..." is the unchanged kube-apiserver) and stops all of them
// in order when it ends, however it ends.
//
// The files, in the order in which up uses them:
//
//	layout.go      where everything is in the data directory
//	lock.go        one supervisor a directory
//	ports.go       free ports that stay ours while a component is down
//	pki.go         certificate authorities, certificates, keys
//	certs.go       which certificates the cluster has
//	kubeconfig.go  kubeconfig files
//	flags.go       the command line of each component
//	spawn.go       child processes that die with their parent
//	process.go     one component's process and its log
//	supervise.go   start order, stop order, what to do when one dies
//	health.go      when is it ready
//	bootstrap.go   the RBAC objects an installer adds
//	control.go     the socket behind down, start, stop and restart
//
// It runs no kubelet and no kube-proxy: nodes are what is tested with it.
package main
