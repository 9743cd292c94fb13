package probe

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Runner makes probes; a Prober is one.
type Runner interface {
	// Probe makes one probe, within its timeoutSeconds, and ends early with
	// ctx. An error means that it could not be made.
	Probe(ctx context.Context, target Target, probe *corev1.Probe) (Outcome, string, error)
}

var _ Runner = (*Prober)(nil)

// ManagerOptions are what a Manager works with. Only Runner is needed. The
// functions are called without locks held, from several goroutines, and should
// return soon.
type ManagerOptions struct {
	// Runner makes the probes.
	Runner Runner
	// Notify is called with a pod whose Results a probe has changed.
	Notify func(types.UID)
	// Event records an event about a container.
	Event func(pod *corev1.Pod, container, eventType, reason, message string)
	// Observe is called after each probe with its outcome and how long it took,
	// for metrics.
	Observe func(pod *corev1.Pod, container string, kind Kind, outcome Outcome, took time.Duration)
}

// Manager makes the probes of containers at their times and knows what follows
// from them. Its methods are safe for concurrent use and return at once, but
// for Close.
//
// A probe that waits is a timer of the Go runtime and no goroutine: 10,000 of
// them took 15 MB with all that is known of their pods, a goroutine each took
// 51 MB without (BenchmarkWaiting). One that is made has a goroutine of its own, so that slow ones, which may be many at once when
// a network breaks, hold up no others. There are never more goroutines than
// probes.
type Manager struct {
	opts    ManagerOptions
	started time.Time
	jitter  func(time.Duration) time.Duration

	ctx     context.Context // of all probes
	cancel  context.CancelFunc
	running sync.WaitGroup // probes that are being made

	mu     sync.Mutex
	pods   map[types.UID]*pod
	closed bool
}

// pod is what the Manager knows of a pod.
type pod struct {
	Pod
	containers map[string]*container
}

// NewManager makes a Manager. It does nothing until Set; end it with Close.
func NewManager(opts ManagerOptions) *Manager {
	ctx, cancel := context.WithCancel(context.Background())
	return &Manager{
		opts:    opts,
		started: time.Now(),
		jitter:  rand.N[time.Duration],
		ctx:     ctx,
		cancel:  cancel,
		pods:    map[types.UID]*pod{},
	}
}

// Pod is what there is to probe of a pod.
type Pod struct {
	Pod *corev1.Pod
	// IP is where to send requests to. It may be empty as long as there is none.
	IP string
	// Terminating ends liveness and startup probes, as a deletion timestamp
	// does.
	Terminating bool
	// Containers are those that run, by name. Those that are no regular
	// containers or sidecars have no probes, and do no harm.
	Containers map[string]Container
}

// Container is an attempt of a container that runs.
type Container struct {
	// ID is the runtime's. Another ID is another container, whose probes begin
	// again.
	ID string
	// StartedAt is when it began to run: initialDelaySeconds count from there.
	StartedAt time.Time
	// Started and Ready are what is known of it from before this process, for
	// example from the pod's status. They count when the Manager first sees
	// the ID.
	Started, Ready bool
}

// Set sets the present state of a pod. It is to be called whenever something
// of it has changed, and does nothing if that is not so. Results show at once
// what follows; Notify is not called for it.
func (m *Manager) Set(now Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	p := m.pods[now.Pod.UID]
	if p == nil {
		p = &pod{containers: map[string]*container{}}
		m.pods[now.Pod.UID] = p
	}
	p.Pod = now
	p.Terminating = now.Terminating || now.Pod.DeletionTimestamp != nil
	for i := range now.Pod.Spec.InitContainers {
		if c := &now.Pod.Spec.InitContainers[i]; isSidecar(c) {
			m.setContainer(p, c)
		}
	}
	for i := range now.Pod.Spec.Containers {
		m.setContainer(p, &now.Pod.Spec.Containers[i])
	}
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (m *Manager) setContainer(p *pod, spec *corev1.Container) {
	now, runs := p.Containers[spec.Name]
	c := p.containers[spec.Name]
	switch {
	case c == nil && !runs:
		return
	case c == nil, runs && c.result.ContainerID != now.ID:
		if c != nil {
			c.stop()
		}
		c = newContainer(p, spec, now)
		p.containers[spec.Name] = c
	}
	c.update(spec, runs)
	m.schedule(c)
}

// Results returns what the probes say of each regular container and sidecar of
// a pod that runs, by name. It is nil for a pod that was not Set.
func (m *Manager) Results(uid types.UID) map[string]Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	results := make(map[string]Result, len(p.containers))
	for name, c := range p.containers {
		if c.runs {
			results[name] = c.result
		}
	}
	return results
}

// Forget ends the probes of a pod and drops what is known of it.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(uid)
}

func (m *Manager) forget(uid types.UID) {
	if p := m.pods[uid]; p != nil {
		for _, c := range p.containers {
			c.stop()
		}
		delete(m.pods, uid)
	}
}

// Close ends all probes and waits for those that are being made. From then on
// nothing is called, and Set does nothing.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	for uid := range m.pods {
		m.forget(uid)
	}
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
}
