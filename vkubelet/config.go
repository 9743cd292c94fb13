package vkubelet

import (
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// Provider runs the pods of a node. What else it can do (logs, exec, metrics
// and so on) it shows by implementing the optional interfaces of this package,
// and with node.PodNotifier that it reports the changes of its pods itself.
type Provider = node.PodLifecycleHandler

// Config configures a Server.
type Config struct {
	// Client talks to the API server. Required. What it has to be allowed: to
	// get, list, watch and delete pods and to patch pods/status; to list and
	// watch ConfigMaps, Secrets and Services, where ResourceManager does not
	// bring informers for them; to create and patch events.
	Client kubernetes.Interface

	// Namespace limits the node to the pods, ConfigMaps and Secrets of one
	// namespace; empty means all of them. Services are seen in all namespaces
	// either way: each pod's environment has that of default/kubernetes.
	Namespace string

	// NodeName is the name of the node whose pods are run. Required, unless
	// PodInformer is set.
	NodeName string

	// Provider runs the pods. Required.
	Provider Provider

	// ResourceManager, if made with NewResourceManagerFromInformers, is where
	// the server has ConfigMaps, Secrets and Services from. Otherwise it reads
	// and watches those ConfigMaps and Secrets that the node's pods name, and
	// the services of the cluster: a lister alone does not show when something
	// appears that a pod waits for.
	ResourceManager *ResourceManager

	// PodSyncWorkers is how many pods are worked on at a time; zero or less
	// means 1.
	PodSyncWorkers int

	// PodInformer, if set, sees the pods of the node, and is started by the
	// caller. Where NodeName is set too, pods that are bound to other nodes
	// are passed over. By default the server has one of its own.
	PodInformer corev1informers.PodInformer

	// HostIPs returns the node's addresses for status.hostIP(s) of pods whose
	// provider does not report any; nil means none. Safe for concurrent use.
	HostIPs func() []string

	// QueueMetrics measures the work queues: see queuemetrics.New. By default
	// they are not measured.
	QueueMetrics workqueue.MetricsProvider
}

func (cfg *Config) validate() error {
	switch {
	case cfg.Client == nil:
		return errdefs.InvalidInput("the Config lacks a Client: set it before New")
	case cfg.Provider == nil:
		return errdefs.InvalidInput("the Config lacks a Provider: set it before New")
	case cfg.NodeName == "" && cfg.PodInformer == nil:
		return errdefs.InvalidInput("the Config lacks a NodeName, without which the pods of the node cannot be found: set it, or a PodInformer, before New")
	}
	return nil
}
