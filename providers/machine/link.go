package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

const (
	// dialTimeout is for how long an agent is waited for before the connection is made again.
	dialTimeout = 20 * time.Second
	// pingInterval and pingTimeout are those of an agent.
	pingInterval, pingTimeout = 5 * time.Second, 5 * time.Second
	// A machine may send as many statuses as it likes: so many are published at once, and then one
	// in an interval.
	publishBurst, publishInterval = 20, time.Second
)

// link is the connection with the agent of a machine. Nothing that comes from there is about
// another pod than the machine's.
type link struct {
	b       *backend
	m       *member
	owner   podgroup.Owner
	name    string
	address string // the machine's when the link was made
	cancel  context.CancelFunc
	fresh   chan struct{} // a status has come

	mu       sync.Mutex
	provider nodeutil.Provider // nil until the agent has answered
	ready    chan struct{}     // closed with provider
	tried    time.Time         // when the agent was asked last, or when the link began
	silent   time.Duration     // for how long it has been asked without an answer
	checked  bool              // the agent has shown its pod since it was connected with last
	lacking  time.Time         // since when it shows none that it was given; later by the time in which it did not answer
	status   *corev1.PodStatus
	images   map[string]string // by container, as the agent was given them
}

// linkTo returns the link of a machine that has an address, and makes it if there is none to that.
func (b *backend) linkTo(m *member) *link {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.link != nil && m.link.address == m.machine.Address {
		return m.link
	}
	if m.link != nil { // the machine has begun again
		m.link.stop()
	}
	ctx, cancel := context.WithCancel(b.ctx)
	l := &link{b: b, m: m, owner: ownerOf(m.machine), name: m.machine.Name, address: m.machine.Address, cancel: cancel, fresh: make(chan struct{}, 1), ready: make(chan struct{}), tried: time.Now()}
	m.link = l
	cfg := remote.Config{
		Address:      b.agentAddressLocked(m),
		StartTimeout: metav1.Duration{Duration: dialTimeout},
		TLS:          &remote.TLS{CAFile: b.authority.path(authorityFile), CertFile: b.authority.path(nodeFile), KeyFile: b.authority.path(nodeKeyFile), ServerName: agent.ServerName(m.machine.Name)},
	}
	b.goOn(func(context.Context) { l.run(ctx, cfg) })
	b.goOn(func(context.Context) { l.publish(ctx) })
	return l
}

func (l *link) stop() { l.cancel() }

// run connects, and watches the pod's status until ctx ends.
func (l *link) run(ctx context.Context, cfg remote.Config) {
	ctx = log.WithLogger(ctx, log.G(ctx).WithField("machine", l.name))
	init := l.b.init
	init.Pods, init.PodsSynced = onePod{init.Pods, l.owner}, nil
	for ctx.Err() == nil {
		init.Node = &corev1.Node{}
		init.Node.Name = l.b.node
		cfg.ClusterUID, _ = l.b.clusterUID.UID(ctx) // else New tries to read it
		provider, far, err := remote.New(ctx, init, cfg)
		if err != nil {
			if ctx.Err() == nil {
				log.G(ctx).WithError(err).Warn("Cannot connect with the agent of a machine")
				l.answered(err)
			}
			if periodic.Sleep(ctx, time.Second) != nil {
				return
			}
			continue
		}
		l.serve(ctx, provider, far)
		return
	}
}

// serve relays until ctx ends. The connection is made again by itself.
func (l *link) serve(ctx context.Context, provider nodeutil.Provider, far node.NodeProvider) {
	if closer, ok := far.(interface{ Close() error }); ok {
		defer closer.Close()
	}
	if notifier, ok := handlerOf(provider).(node.PodNotifier); ok {
		notifier.NotifyPods(ctx, l.take)
	}
	// It sends volumes again to an agent that has begun again, which may have lost its pod, too.
	far.NotifyNodeStatus(ctx, func(*corev1.Node) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.checked = false
	})
	l.mu.Lock()
	l.provider = provider
	close(l.ready)
	l.mu.Unlock()
	l.answered(nil)
	for ctx.Err() == nil {
		late, cancel := context.WithTimeout(ctx, pingTimeout)
		err := far.Ping(late)
		cancel()
		if ctx.Err() != nil {
			return
		}
		l.answered(err)
		if err == nil {
			l.catchUp(ctx, provider)
		}
		if periodic.Sleep(ctx, l.b.pingInterval) != nil {
			return
		}
	}
}

// handlerOf returns what has the optional interfaces of a provider.
func handlerOf(p nodeutil.Provider) (handler any) {
	handler = p
	if w, ok := handler.(interface {
		Unwrap() node.PodLifecycleHandler
	}); ok {
		handler = w.Unwrap()
	}
	return handler
}

// catchUp reads the pod of a machine that an earlier process has given it to, or whose agent has
// begun again. An agent may not have its pod for a moment while it does; one that goes on like that
// has lost it.
func (l *link) catchUp(ctx context.Context, provider nodeutil.Provider) {
	l.mu.Lock()
	done := l.checked
	l.mu.Unlock()
	if done || !l.given() {
		return
	}
	pod, err := l.get(ctx, provider)
	lacks := errdefs.IsOnlyNotFound(err)
	l.mu.Lock()
	l.checked = err == nil
	lost := l.lacksLocked(lacks)
	first := l.status == nil
	l.mu.Unlock()
	switch {
	case err == nil:
		l.setImages(pod)
		if first { // else what is watched is newer
			l.take(pod)
		}
	case lost:
		l.b.lose(ctx, l.m)
	case !lacks:
		log.G(ctx).WithError(err).Warn("The agent of a machine does not show its pod")
	}
}

// lacksLocked records whether the agent shows its pod, and reports whether it has lost it. l.mu is held.
func (l *link) lacksLocked(lacks bool) (lost bool) {
	if !lacks {
		l.lacking = time.Time{}
	} else if l.lacking.IsZero() {
		l.lacking = time.Now()
	}
	return lacks && time.Since(l.lacking) >= l.b.cfg.MissingTimeout.Duration
}

func (l *link) given() bool {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.m.record != nil && l.m.record.Given
}

// maxPause is the most that one question without an answer adds to an agent's silence: a node
// that was stopped for an hour has not asked it for that long.
const maxPause = dialTimeout + 5*time.Second

// answered records whether the agent has answered a question.
func (l *link) answered(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pause := min(time.Since(l.tried), maxPause)
	if !l.lacking.IsZero() && (err != nil || l.silent > 0) { // it may begin again, and has its pod in a moment
		l.lacking = l.lacking.Add(time.Since(l.tried))
	}
	l.tried = time.Now()
	if l.silent += pause; err == nil {
		l.silent = 0
	}
}

// silentFor is for how long the agent has been asked without an answer.
func (l *link) silentFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// excuse has the silence of the agent count from now on.
func (l *link) excuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = min(l.silent, 1) // it still does not answer
}

// answers reports whether the agent has answered the last question.
func (l *link) answers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.provider != nil && l.silent == 0
}

// connected returns the agent's provider, once it has answered.
func (l *link) connected(ctx context.Context) (nodeutil.Provider, error) {
	select {
	case <-l.ready:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.provider, nil
	case <-ctx.Done():
		return nil, errdefs.AsRetryAfter(errdefs.AsUnavailable(errors.New("its agent does not answer")), time.Second)
	}
}

// get returns the machine's pod from its agent.
func (l *link) get(ctx context.Context, provider nodeutil.Provider) (*corev1.Pod, error) {
	pod, err := provider.GetPod(ctx, l.owner.Namespace, l.owner.Name)
	if err != nil {
		return nil, err
	}
	if pod == nil {
		return nil, errdefs.NotFoundf("the agent does not have the pod")
	}
	if pod.UID != l.owner.UID {
		return nil, fmt.Errorf("the agent shows a pod with UID %q: %w", clip(string(pod.UID), 100), errTooMany)
	}
	return pod, nil
}

// give gives the agent its pod, unless it has it: an answer may have been lost. Once the agent
// can be reached, the end of ctx does not break that off: a pod that is deleted meanwhile ends
// within its grace period only if it is known that the machine has it. One that may have run, and must
// not run again, is not sent twice.
func (l *link) give(ctx context.Context, pod *corev1.Pod) error {
	provider, err := l.connected(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveTimeout)
	defer cancel()
	defer context.AfterFunc(l.b.ctx, cancel)()
	_, err = l.get(ctx, provider)
	lacks := errdefs.IsOnlyNotFound(err)
	mayHaveRun := lacks && runsOnce(pod) && l.b.wasSent(l.m)
	l.mu.Lock()
	lost := l.lacksLocked(mayHaveRun)
	l.mu.Unlock()
	switch {
	case lost:
		err = errdefs.AsPermanent(fmt.Errorf("%s: the agent of machine %s does not have the pod that it was sent, which runs once at the most, and may have run", reasonLost, l.name))
	case mayHaveRun: // it may have begun again
		err = errdefs.AsRetryAfter(errdefs.AsUnavailable(errors.New("its agent does not show the pod that it was sent")), time.Second)
	case lacks:
		err = l.send(ctx, provider, pod)
	}
	if err == nil {
		l.setImages(pod)
	}
	return err
}

// send sends the agent its pod. One that it refuses, and does not have, has not run.
func (l *link) send(ctx context.Context, provider nodeutil.Provider, pod *corev1.Pod) error {
	if err := l.b.setSent(l.m, true); err != nil {
		return err
	}
	err := provider.CreatePod(ctx, pod)
	if err == nil || !isAnswer(err) {
		return err
	}
	if _, shown := l.get(ctx, provider); errdefs.IsOnlyNotFound(shown) {
		if failed := l.b.setSent(l.m, false); failed != nil {
			return failed
		}
		return podgroup.NotCreated(err)
	}
	return err
}

// isAnswer reports whether an error has come from the agent: one of its connection is of class
// Unavailable, or that of a context.
func isAnswer(err error) bool {
	return !errdefs.IsUnavailable(err) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

func (l *link) setImages(pod *corev1.Pod) {
	images := map[string]string{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if len(images) < maxContainers { // an agent that is asked for its pod may show any
				images[clip(containers[i].Name, maxText)] = clip(containers[i].Image, maxText)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.images = images
}

// take takes a status from the agent, which may send any.
func (l *link) take(pod *corev1.Pod) {
	if pod.Namespace != l.owner.Namespace || pod.Name != l.owner.Name || pod.UID != l.owner.UID || pod.Status.Phase == "" {
		return
	}
	status := bounds(&pod.Status)
	l.mu.Lock()
	l.status = status
	l.mu.Unlock()
	select {
	case l.fresh <- struct{}{}:
	default:
	}
}

// publish reports statuses, the last one always, until ctx ends.
func (l *link) publish(ctx context.Context) {
	limiter := rate.NewLimiter(rate.Every(publishInterval), publishBurst)
	for {
		select {
		case <-l.fresh:
		case <-ctx.Done():
			return
		}
		l.b.settle(ctx, l.m)
		l.b.publish(l.m)
		if limiter.Wait(ctx) != nil {
			return
		}
	}
}

// observed returns the last status, nil if there is none yet, and the images that the agent has.
func (l *link) observed() (*corev1.PodStatus, map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status, l.images
}
