package podgroup

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// callTimeout is the timeout of a call that is to end by itself.
const callTimeout = time.Minute

// calls makes the calls of a Backend: within the budget, with a deadline, a span and
// metrics. It is safe for concurrent use.
type calls struct {
	budget  *Budget
	service string
	limits  map[Action]time.Duration // of calls that end by themselves; callTimeout without
	count   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newCalls(service string, budget *Budget, create time.Duration, to prometheus.Registerer) *calls {
	c := &calls{
		budget: budget, service: service, limits: map[Action]time.Duration{ActionCreate: create},
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "virtual_kubelet_podgroup_calls_total",
			Help: "Calls to a service that runs pods as units, by service, action and class of the error (empty for none).",
		}, []string{"service", "action", "error"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "virtual_kubelet_podgroup_call_duration_seconds",
			Help:    "How long calls to a service that runs pods as units take, without those that last as long as a client wants.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"service", "action"}),
	}
	c.count, c.seconds = register(to, c.count), register(to, c.seconds)
	return c
}

// register registers a collector, or returns the one that another node of the process has
// registered.
func register[C prometheus.Collector](to prometheus.Registerer, c C) C {
	if to == nil {
		return c
	}
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](to.Register(c)); ok {
		if same, ok := known.ExistingCollector.(C); ok {
			return same
		}
	}
	return c
}

// guarded makes a call, whose panic is an error: a backend must not end the process.
func (c *calls) guarded(ctx context.Context, action Action, call func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = providercalls.Panicked(ctx, c.service+"."+string(action), r)
		}
	}()
	return call(ctx)
}

// do makes a call that ends by itself.
func (c *calls) do(ctx context.Context, action Action, call func(context.Context) error) error {
	return c.call(ctx, action, maxBudgetWait, func(ctx context.Context) error {
		return c.timed(ctx, action, call)
	})
}

// doNext makes a call that belongs to one that was made before, such as for the next page
// of a list. It waits for its turn as long as ctx allows.
func (c *calls) doNext(ctx context.Context, action Action, call func(context.Context) error) error {
	return c.call(ctx, action, listTimeout, func(ctx context.Context) error {
		return c.timed(ctx, action, call)
	})
}

// timed makes a call with a deadline, and measures it.
func (c *calls) timed(ctx context.Context, action Action, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.limits[action], callTimeout))
	defer cancel()
	start := time.Now()
	err := call(ctx)
	c.seconds.WithLabelValues(c.service, string(action)).Observe(time.Since(start).Seconds())
	if err != nil && ctx.Err() != nil && errdefs.ClassOf(err) == errdefs.UnknownClass {
		err = errdefs.AsUnavailable(err) // the service did not answer in time
	}
	return err
}

// open makes a call that lasts as long as its caller wants.
func (c *calls) open(ctx context.Context, action Action, call func(context.Context) error) error {
	return c.call(ctx, action, maxBudgetWait, call)
}

func (c *calls) call(ctx context.Context, action Action, patience time.Duration, call func(context.Context) error) (err error) {
	if err := c.budget.wait(ctx, action, patience); err != nil {
		return err
	}
	ctx, span := trace.StartSpan(ctx, c.service+"."+string(action))
	defer func() {
		span.SetStatus(err)
		span.End()
	}()
	err = c.guarded(ctx, action, call)
	c.count.WithLabelValues(c.service, string(action), string(errdefs.ClassOf(err))).Inc()
	c.budget.record(action, err)
	return err
}
