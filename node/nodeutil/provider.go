package nodeutil

import (
	"context"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// Provider is a node.PodLifecycleHandler that also answers the kubelet's API.
// What a backend cannot do returns an error: errors.ErrUnsupported becomes a 501,
// one with a class the status that errdefs.Describe names (404 for NotFound), any
// other a 500 with its text. So does a panic, without its text. The methods are called
// for requests of clients, at any time from when NotifyPods has returned until the node
// ends, also for the same pod, and are not tried again.
type Provider interface {
	node.PodLifecycleHandler

	// GetContainerLogs returns the logs of a container. The reader is closed
	// when the client has gone, also during a Read.
	GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error)

	// RunInContainer runs a command in a container, with its streams connected
	// to attach, and returns when it has ended. An error that has an exit code
	// (k8s.io/utils/exec.ExitError) hands it to the client. ctx ends when the
	// client has gone.
	RunInContainer(ctx context.Context, namespace, podName, containerName string, cmd []string, attach api.AttachIO) error

	// AttachToContainer connects attach to the container's main process.
	AttachToContainer(ctx context.Context, namespace, podName, containerName string, attach api.AttachIO) error

	// GetStatsSummary returns the figures of the node and its pods.
	GetStatsSummary(context.Context) (*statsv1alpha1.Summary, error)

	// GetMetricsResource returns the metrics that metrics-server reads.
	GetMetricsResource(context.Context) ([]*dto.MetricFamily, error)

	// PortForward connects stream to a port of the pod, until either side ends.
	PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error
}

// ProviderConfig is what a provider is made with. The listers of pods and
// services are filled by the time at which the first pod is created; with
// SkipDownwardAPIResolution only that of the pods is, and the other follows.
type ProviderConfig struct {
	// Pods are the pods of this node. They must not be changed, as those of one template
	// share memory. PodsSynced reports whether all of them are known: a pod that is not
	// among them before may be there all the same. Nil means that they always are.
	Pods       corev1listers.PodLister
	PodsSynced func() bool
	// ConfigMaps and Secrets read an object when Get asks for it: one that a
	// pod of this node names is watched from then on, until the pod has gone or
	// nobody has asked for five minutes; any other is read from the API server
	// each time, which refuses that to a node's own identity. Get may so take
	// as long as a request, ten seconds at most. List returns the objects that
	// are watched at the moment, and not all that the cluster has.
	ConfigMaps corev1listers.ConfigMapLister
	Secrets    corev1listers.SecretLister
	// Services are those of the whole cluster.
	Services corev1listers.ServiceLister

	// What providers need that do a kubelet's work themselves: Objects reads
	// ConfigMaps and Secrets like the listers, and reports changes; Client is
	// the node's; Events records events on pods; HostIPs and NodeAllocatable
	// return what the node says of itself at the moment.
	Objects         node.ObjectSource
	Client          kubernetes.Interface
	Events          record.EventRecorder
	HostIPs         func() []string
	NodeAllocatable func() corev1.ResourceList

	// Metrics is where the provider may register metrics of its own, which
	// /metrics then has too. Providers of several nodes may be given the same.
	Metrics prometheus.Registerer

	// MayBegin reports whether this process may begin something for the node: not before
	// it has acquired the claim, nor after the node has ended, nor while another one may have
	// taken the node (see node.Claim). A provider that creates or deletes of its own accord,
	// without having been called, asks it before. Nil means always.
	MayBegin func() bool

	// Node is the node to be registered. The provider changes it as it sees
	// fit while it is made; its maps of labels and annotations are not nil.
	Node *corev1.Node
}

// NewProviderFunc makes the provider of a node. A nil NodeProvider means that
// the node is always well. A Fleet calls it before the node is claimed (see
// NodeConfig.Claim), when another process may act for it still: what the backend holds
// is to be read, and changed, by the methods of the provider only, of which none is
// called before the claim was acquired: requests for what it answers get 503 until then.
type NewProviderFunc func(ProviderConfig) (Provider, node.NodeProvider, error)
