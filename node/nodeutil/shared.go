package nodeutil

import (
	"cmp"
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podobjects"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
	"github.com/virtual-kubelet/virtual-kubelet/internal/statuspage"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/queuemetrics"
)

// shared is what the nodes of a Fleet have in common, so that it costs once. A
// node by itself has its own.
type shared struct {
	client   kubernetes.Interface
	pods     *podwatch.Watch
	objects  *podobjects.Cache
	services informers.SharedInformerFactory
	events   *eventWriter
	workers  *node.Workers
	metrics  *nodeMetrics
	streams  *api.StreamLimiter
	watchers statuspage.Watchers

	capacity, allocatable resourceLists // of the nodes

	// registering bounds how many nodes make an attempt to register at the same
	// time; nil means no bound.
	registering chan struct{}
}

// newShared makes all but the pods and the workers.
func newShared(client kubernetes.Interface, eventSource string, eventQPS float32, eventBurst int, limits api.StreamLimits) *shared {
	s := &shared{
		client:   client,
		objects:  podobjects.New(client),
		services: informers.NewSharedInformerFactory(client, 0),
		events:   newEventWriter(eventQPS, eventBurst),
		metrics:  newNodeMetrics(),
		streams:  newStreamLimiter(limits),
		watchers: statuspage.NewWatchers(),
	}
	s.events.component = cmp.Or(eventSource, defaultEventSource)
	s.metrics.registry.MustRegister(s.events.metrics.collectors()...)
	s.services.InformerFor(&corev1.Service{}, listwatch.Services) // the first node may come after start
	return s
}

// newWorkers makes workers whose queues the metrics show.
func (s *shared) newWorkers(limit int) *node.Workers {
	return node.NewWorkers(limit, node.WithQueueMetrics(queuemetrics.New(s.metrics.registry)))
}

// start has all of it run in group until ctx ends. The function that it returns
// is to be called when nobody needs it any more, after the end of ctx.
func (s *shared) start(ctx context.Context, group *errgroup.Group) (stop func()) {
	stopEvents := s.events.start(s.client)
	group.Go(func() error { s.pods.Run(ctx); return nil })
	group.Go(func() error { s.objects.Run(ctx); return nil })
	s.services.StartWithContext(ctx)
	return func() {
		s.services.Shutdown()
		stopEvents()
	}
}

// register waits until the node may make an attempt to register; done lets the next
// one. A node that is refused so holds up no other.
func (s *shared) register(ctx context.Context) (done func(), err error) {
	if s.registering == nil {
		return func() {}, nil
	}
	select {
	case s.registering <- struct{}{}:
		return func() { <-s.registering }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// newStreamLimiter goes by the users that WithAuth has let in.
func newStreamLimiter(limits api.StreamLimits) *api.StreamLimiter {
	if limits.User == nil {
		limits.User = func(r *http.Request) string {
			if caller, ok := request.UserFrom(r.Context()); ok {
				return caller.GetName()
			}
			return ""
		}
	}
	return api.NewStreamLimiter(limits)
}
