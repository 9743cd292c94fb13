package nodeutil

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// NodeConfig configures a Node. Its zero value, with a name, is usable: each
// field says what zero means.
type NodeConfig struct {
	// Client talks to the API server. Nil means one from KubeconfigPath, by the
	// rules of ClientsetFromEnv.
	Client kubernetes.Interface

	// NodeSpec is the node to register; NewNode copies it. What is empty of its
	// name, the conditions, the node info and the port is filled in, and so are
	// the labels for the host name, the operating system and the architecture.
	// Addresses that are missing are the name and that from which the API server is
	// reached; where its name cannot be resolved yet, some address of this machine.
	// Labels that are nil also get those for type and role. A process that is the
	// node itself to the API server registers it without the labels that a node
	// may not have, such as that for the role.
	NodeSpec corev1.Node

	// KubeconfigPath is used only where Client is nil.
	KubeconfigPath string

	// HTTPListenAddr is where the kubelet API is served; empty means ":10250".
	// With port 0 a free port is taken. Either way the node reports the port.
	HTTPListenAddr string

	// Handler serves the kubelet API. Nil means that none is served.
	Handler http.Handler

	// Auth decides which requests to the routes of AttachProviderRoutes are allowed, but for requests that
	// come through WithAuth or WithAuthExceptHealth around the mux. Nil means that the
	// API server does, as WebhookAuth asks it; NoAuth() lets everybody do everything.
	Auth Auth

	// TLSConfig is the server's. Nil, or one without any certificate, means a
	// self-signed one in memory: the API server does not check a kubelet's
	// unless --kubelet-certificate-authority is set.
	TLSConfig *tls.Config

	// ServingCertDir, unless it is empty, has the cluster sign the serving
	// certificate: see WithServingCertificateFromCluster. TLSConfig must not have
	// one then.
	ServingCertDir string

	// DebugHTTP adds /debug/pprof/ to the routes of AttachProviderRoutes.
	DebugHTTP bool

	// Flags are the settings, by name, that the program was started with, for
	// /flagz among the routes of AttachProviderRoutes. Leave secrets out:
	// users who may get nodes/configz can read them.
	Flags map[string]string

	// NumWorkers is the number of workers for each of the pod controller's
	// queues; zero means one for each CPU, but at least ten, since they mostly
	// wait for the provider or the API server.
	NumWorkers int

	// InformerResyncPeriod is how often all pods are resynced although nothing
	// has changed; zero means a minute.
	InformerResyncPeriod time.Duration

	// SkipDownwardAPIResolution hands pods to the provider with valueFrom and
	// envFrom as they are.
	SkipDownwardAPIResolution bool

	// StreamIdleTimeout ends an exec, attach or port-forward on which nothing
	// moves; StreamCreationTimeout one whose streams do not come. Zero means
	// the defaults of package api.
	StreamIdleTimeout     time.Duration
	StreamCreationTimeout time.Duration

	// StreamLimits limits how many exec, attach, port-forward and log sessions there
	// are at once. Zero means the defaults of package api. The nodes of a Fleet share
	// those of its FleetConfig, and this field has no effect there. User defaults to
	// the user that WithAuth has let in.
	StreamLimits api.StreamLimits

	// NodeStatusUpdateErrorHandler: see node.WithNodeStatusUpdateErrorHandler.
	NodeStatusUpdateErrorHandler node.ErrorHandler

	// EventRecorder records events on pods; nil means the API server.
	EventRecorder record.EventRecorder

	// EventQPS is how many events of type Normal may be recorded a second, and
	// EventBurst how many at once; what is more is dropped, and warnings never
	// are. Zero means 50 and 100, which are a kubelet's; a negative EventQPS
	// means no limit. They have no effect on an EventRecorder of the caller's.
	EventQPS   float32
	EventBurst int

	// EventSource is the component that events on pods and the Node come from, which
	// tools select by. Defaults to virtual-kubelet; a kubelet's is kubelet.
	EventSource string

	// DisableOrphanCleanup: see node.PodControllerConfig.
	DisableOrphanCleanup bool

	// LostPodTimeout: see node.PodControllerConfig.
	LostPodTimeout time.Duration

	// Namespace is the one namespace whose pods the node takes; empty means all.
	Namespace string

	// DisableLease keeps the node alive by writing its status every ten
	// seconds rather than by a lease.
	DisableLease bool

	// NotReadyAtShutdown has the node say that it is not ready when Run ends, and its
	// pods with it, unless another process goes on with it (node.ErrHandedOver). The
	// control plane then taints the node at once, and Services no longer send to its
	// pods, though they may run on. By default the Node stays as it is, so that a
	// restart is not noticed, and its lease runs out if nobody goes on with it.
	NotReadyAtShutdown bool

	// Claim, if set, is acquired before anything is done for the node or its pods,
	// and released when all of that has ended, unless KeepClaim is set. Pods that it leaves
	// alone are not touched. Nil means that any process may act for the node at any time.
	Claim *node.Claim

	// KeepClaim leaves it to the caller to release the Claim, after the provider is closed:
	// what it has open, such as a state directory, would be in the way of the next process.
	KeepClaim bool

	attachRoutes func(*Node, Provider)
	caGiven      bool // TLSConfig demands certificates by WithTLSConfig
}

// NodeOpt changes the configuration of a node. Options run in order, and each
// sees what the earlier ones have done.
type NodeOpt func(*NodeConfig) error

// WithClient sets the client.
func WithClient(client kubernetes.Interface) NodeOpt {
	return func(cfg *NodeConfig) error {
		cfg.Client = client
		return nil
	}
}

// WithNodeConfig replaces the whole configuration: give it first.
func WithNodeConfig(c NodeConfig) NodeOpt {
	return func(cfg *NodeConfig) error {
		attach := cfg.attachRoutes
		*cfg = c
		if cfg.attachRoutes == nil {
			cfg.attachRoutes = attach
		}
		return nil
	}
}

// AttachProviderRoutes serves the kubelet API of the node and its provider on
// mux, which the caller has, or will have, in NodeConfig.Handler: pods, logs,
// exec, attach and port-forward, statistics and metrics, health, configuration,
// and with DebugHTTP profiles. docs/kubelet-api.md lists them. They are one
// handler for "/": patterns that the caller has on mux go first.
//
// Who may use them is for the caller to say, around the mux with WithAuth or
// WithAuthExceptHealth, or with NodeConfig.Auth. Requests for which nobody has, and
// that do not come with a client certificate that TLSConfig demands (WithCACert), are
// put before the API server, as by WebhookAuth; /healthz, /livez and /readyz are then
// for everybody.
func AttachProviderRoutes(mux api.ServeMux) NodeOpt {
	return func(cfg *NodeConfig) error {
		cfg.attachRoutes = func(n *Node, p Provider) {
			mux.Handle("/", n.guard(n.kubeletAPI(p)))
			n.unguarded = sameHandler(n.cfg.Handler, mux) && !n.cfg.demandsCertificate()
		}
		return nil
	}
}

// WithKubeletAPI serves the kubelet API of the node and its provider, all that
// AttachProviderRoutes lists, for programs that need no mux of their own. It sets
// NodeConfig.Handler; where that is set already it fails with an error of class
// InvalidInput. Who may use the API is for NodeConfig.Auth to say, and by default for
// the API server: see AttachProviderRoutes.
func WithKubeletAPI() NodeOpt {
	return func(cfg *NodeConfig) error {
		if cfg.Handler != nil {
			return errdefs.InvalidInput("WithKubeletAPI is given, but NodeConfig.Handler is set: use AttachProviderRoutes with a mux of that handler")
		}
		mux := http.NewServeMux()
		cfg.Handler = api.InstrumentHandler(mux)
		return AttachProviderRoutes(mux)(cfg)
	}
}

// demandsCertificate reports whether only clients with a certificate can connect.
func (cfg *NodeConfig) demandsCertificate() bool {
	return cfg.TLSConfig != nil && cfg.TLSConfig.ClientAuth == tls.RequireAndVerifyClientCert
}

// defaultNodeConfig is what the options find.
func defaultNodeConfig(name string) NodeConfig {
	var cfg NodeConfig
	cfg.setDefaults(name)
	return cfg
}

// setDefaults fills in what is empty.
func (cfg *NodeConfig) setDefaults(name string) {
	if cfg.NodeSpec.Name == "" {
		cfg.NodeSpec.Name = name
	}
	if cfg.NodeSpec.Labels == nil {
		cfg.NodeSpec.Labels = map[string]string{
			"type":               "virtual-kubelet",
			"kubernetes.io/role": "agent",
			corev1.LabelHostname: cfg.NodeSpec.Name,
		}
	}
	if cfg.NodeSpec.Annotations == nil {
		cfg.NodeSpec.Annotations = map[string]string{}
	}
	if cfg.HTTPListenAddr == "" {
		cfg.HTTPListenAddr = ":10250"
	}
	if cfg.NumWorkers <= 0 {
		cfg.NumWorkers = max(runtime.NumCPU(), 10)
	}
	cfg.EventQPS = cmp.Or(cfg.EventQPS, 50)
	cfg.EventBurst = cmp.Or(cfg.EventBurst, 100)
	if cfg.InformerResyncPeriod <= 0 {
		cfg.InformerResyncPeriod = time.Minute
	}
}
