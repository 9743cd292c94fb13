package vkubelet

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
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
	controllerConfig, sources := cfg.assemble(broadcaster)
	if pods, ok := controllerConfig.Pods.(*podwatch.Pods); ok {
		pc.server.known.Store(watchedPods(pods))
	} else {
		pc.server.known.Store(informedPods(cfg.PodInformer))
	}
	controller, err := node.NewPodController(controllerConfig)
	if err != nil {
		return err
	}

	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: cfg.Client.CoreV1().Events("")})
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	for _, run := range sources {
		group.Go(func() error { run(running); return nil })
	}
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

// assemble makes the configuration of a node.PodController, and what it reads
// from: to be run once the controller has been made.
func (cfg *Config) assemble(broadcaster record.EventBroadcaster) (c node.PodControllerConfig, sources []func(context.Context)) {
	c = node.PodControllerConfig{
		PodClient: cfg.Client.CoreV1(),
		EventRecorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{
			Component: "virtual-kubelet",
			Host:      cfg.NodeName,
		}),
		Provider:    cfg.Provider,
		PodInformer: cfg.PodInformer,
		HostIPs:     cfg.HostIPs,
		Workers:     node.NewWorkers(0, node.WithQueueMetrics(cfg.QueueMetrics)),
	}
	if cfg.NodeName != "" {
		c.PodEventFilterFunc = func(_ context.Context, pod *corev1.Pod) bool { return cfg.onNode(pod) }
	}
	if c.PodInformer == nil {
		pods := podwatch.NewPods()
		c.Pods = pods
		watch := podwatch.ForNode(cfg.Client, cfg.Namespace, 0, cfg.NodeName, pods)
		c.PodClient = watch.Client()
		sources = append(sources, watch.Run)
	}
	if rm := cfg.ResourceManager; rm != nil && rm.informers != nil {
		c.ConfigMapInformer = rm.informers.configMaps
		c.SecretInformer = rm.informers.secrets
		c.ServiceInformer = rm.informers.services
		return c, sources
	}
	objects := podobjects.New(cfg.Client)
	c.Objects = objects
	services := informers.NewSharedInformerFactory(cfg.Client, 0)
	c.ServiceInformer = services.Core().V1().Services()
	return c, append(sources, objects.Run, services.InformerFor(&corev1.Service{}, listwatch.Services).RunWithContext)
}
