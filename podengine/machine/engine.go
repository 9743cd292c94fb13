package machine

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
)

// Engine is an engine for the containers of this machine, with what it says of the
// node: it is what a provider needs besides its runtime.
type Engine struct {
	*podengine.Engine
	host *host

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NotifyNodeStatus implements node.NodeProvider: the node is reported again once a
// runtime that was not up says what it is, and when the machine runs out of
// something, or no longer does.
func (e *Engine) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) {
	e.host.notifyWith(notify)
}

// Close ends the engine. Containers run on.
func (e *Engine) Close() error {
	e.cancel()
	e.running.Wait()
	return e.Engine.Close()
}

const (
	// learnEvery is how often a runtime that has not reported its version is asked for it.
	learnEvery = time.Second
	// learnTimeout is how long it may take to answer.
	learnTimeout = 5 * time.Second
)

// host is what the node's status says of this machine. It is safe for concurrent
// use.
type host struct {
	runtime internalapi.RuntimeService
	source  *corev1.Node // the provider's; it is read only, when somebody listens

	mu       sync.Mutex
	version  *runtimeapi.VersionResponse // nil until the runtime has answered
	features *runtimeapi.StatusResponse
	pressure []corev1.NodeCondition
	pressed  bool         // pressure has changed since the node was made
	node     *corev1.Node // nil until somebody listens
	notify   func(*corev1.Node)
}

// notifyWith has changes of the node reported from now on.
func (h *host) notifyWith(notify func(*corev1.Node)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.node, h.notify = h.source.DeepCopy(), notify
	if h.pressed || h.version != nil && h.node.Status.NodeInfo.ContainerRuntimeVersion == "" {
		h.report() // something has changed since the node was made
	}
}

// report reports the node, if anybody listens. h.mu is held.
func (h *host) report() {
	if h.notify == nil {
		return
	}
	h.describe(h.node)
	h.describePressure(h.node)
	h.notify(h.node.DeepCopy())
}

// describe sets in a node what the runtime has reported. h.mu is held.
func (h *host) describe(n *corev1.Node) {
	if h.version == nil {
		return
	}
	n.Status.NodeInfo.ContainerRuntimeVersion = h.version.RuntimeName + "://" + h.version.RuntimeVersion
	describeRuntime(n, h.features)
}

// learn asks the runtime what it is and what it can do.
func (h *host) learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	version, err := h.runtime.Version(ctx, "v1")
	if err != nil {
		return err
	}
	features, err := h.runtime.Status(ctx, false)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version, h.features = version, features
	h.report()
	return nil
}

// watch asks the runtime what it is until it has answered, or ctx ends.
func (h *host) watch(ctx context.Context) {
	periodic.Every(ctx, learnEvery, func(ctx context.Context) (more bool) { return h.learn(ctx) != nil })
}
