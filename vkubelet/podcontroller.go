package vkubelet

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// PodController is a node.PodController together with the informers and the
// event recorder that it needs. Make one with NewPodController.
type PodController struct {
	server  *Server
	started atomic.Bool
	ready   chan struct{}
}

// NewPodController makes a PodController with the Config of server, for those
// who want to run it themselves in place of Server.Run. Use one of the two: two
// controllers for the same pods get in each other's way.
func NewPodController(server *Server) *PodController {
	return &PodController{server: server, ready: make(chan struct{})}
}

// Run works on podSyncWorkers pods at a time (zero or less means 1) until ctx
// ends. Otherwise it is as Server.Run.
func (pc *PodController) Run(ctx context.Context, podSyncWorkers int) error {
	if pc.server == nil {
		return errdefs.InvalidInput("the pod controller has no server: pass NewPodController what New returned")
	}
	if !pc.started.CompareAndSwap(false, true) {
		return errors.New("the pod controller was started before: make a new one to run it again")
	}
	cfg := &pc.server.cfg
	if err := cfg.validate(); err != nil {
		return err
	}

	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	controllerConfig, factories := cfg.assemble(broadcaster)
	controller, err := node.NewPodController(controllerConfig)
	if err != nil {
		return err
	}

	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: cfg.Client.CoreV1().Events("")})
	running, cancel := context.WithCancel(ctx)
	for _, factory := range factories {
		factory.StartWithContext(running)
		defer factory.Shutdown() // after cancel, which is deferred later
	}
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		defer cancel()
		return controller.Run(running, podSyncWorkers)
	})
	group.Go(func() error {
		select {
		case <-running.Done():
		case <-controller.Ready():
			close(pc.ready)
			pc.server.becomeReady()
		}
		return nil
	})
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil // stopping is what ctx asked for, even before the caches had synced
}

// Ready returns a channel that is closed once the caches have synced and pods
// are worked on.
func (pc *PodController) Ready() <-chan struct{} { return pc.ready }

// assemble makes the configuration of a node.PodController. The factories are
// to be started once it has been taken over.
func (cfg *Config) assemble(broadcaster record.EventBroadcaster) (node.PodControllerConfig, []informers.SharedInformerFactory) {
	namespaced := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithNamespace(cfg.Namespace))
	everywhere := informers.NewSharedInformerFactory(cfg.Client, 0)
	ofNode := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithNamespace(cfg.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName).String()
		}))

	c := node.PodControllerConfig{
		PodClient: cfg.Client.CoreV1(),
		EventRecorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{
			Component: "virtual-kubelet",
			Host:      cfg.NodeName,
		}),
		Provider:          cfg.Provider,
		PodInformer:       cfg.PodInformer,
		ConfigMapInformer: namespaced.Core().V1().ConfigMaps(),
		SecretInformer:    namespaced.Core().V1().Secrets(),
		ServiceInformer:   everywhere.Core().V1().Services(),
		HostIPs:           cfg.HostIPs,
	}
	if c.PodInformer == nil {
		c.PodInformer = ofNode.Core().V1().Pods()
	}
	if cfg.NodeName != "" {
		c.PodEventFilterFunc = func(_ context.Context, pod *corev1.Pod) bool { return pod.Spec.NodeName == cfg.NodeName }
	}
	if rm := cfg.ResourceManager; rm != nil && rm.informers != nil {
		c.ConfigMapInformer = rm.informers.configMaps
		c.SecretInformer = rm.informers.secrets
		c.ServiceInformer = rm.informers.services
	}
	return c, []informers.SharedInformerFactory{namespaced, everywhere, ofNode}
}
