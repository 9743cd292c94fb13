package faults

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// maxBroken bounds the report of one history.
const maxBroken = 20

// world is an agent between an API server and a provider, both with faults, and
// what is known of it all.
type world struct {
	ctx   context.Context
	ns    string               // the namespace of its pods
	node  string               // the name of the agent's node
	admin kubernetes.Interface // whose requests meet no faults
	api   *fault.Transport     // those of the agent do
	prov  *fault.Provider
	model *model
	agent *agent // nil while there is none

	// What differs between the API server in memory and the real one.
	host       string            // of the agent's requests
	way        http.RoundTripper // that they take
	settle     func()            // waits for what is about to happen
	look       func(*corev1.Pod) // takes in what the API has of a pod; nil: it is known
	most       time.Duration     // the longest wait or partition
	restWithin time.Duration
	restStep   time.Duration
	compact    func()       // has resource versions expire
	workers    int          // of each of the agent's queues
	hangUp     func()       // closes the connections that nobody uses
	updates    atomic.Int64 // count, for labels that differ
	behind     atomic.Int64 // by so many nanoseconds the API server's clock is wrong when it stamps deletions

	mu        sync.Mutex
	pods      map[types.UID]*fate
	strangers []*fate                 // see excused
	blind     bool                    // no agent has seen all pods of the API yet
	started   time.Time               // when the agent was
	stops     map[types.UID]time.Time // when the agent first asked for a pod to stop
	emptied   time.Time               // since when the provider has known nothing, with short breaks
	loses     time.Time               // until when the provider has known nothing for long enough to lose pods
	empty     time.Time               // until when
	calls     map[callKey]beganCall   // of the provider that are under way
	broken    []string
}

// callKey is what the calls of a provider follow each other for.
type callKey struct {
	name types.NamespacedName
	uid  types.UID // empty where it goes by names
}

// beganCall is a call of the provider that is under way.
type beganCall struct {
	method   string
	empty    bool // the provider knew nothing when it began
	terminal bool // the pod had ended for the API then
}

// fate is what the API has had of a pod.
type fate struct {
	namespace, name string
	created         time.Time
	node            string
	deleted         bool // its deletion was asked for
	gone            bool
	terminal        bool
	never           bool      // is its restart policy
	deadline        time.Time // before which it is not to be killed
	condition       bool      // somebody else has set a condition
}

func newWorld(ctx context.Context, h history) *world {
	w := &world{ctx: ctx, ns: "default", node: "vk", workers: 3, pods: map[types.UID]*fate{}, calls: map[callKey]beganCall{}}
	w.model = newModel(h.shape, w)
	w.prov = fault.NewProvider(w.model.handler(), h.seed)
	w.prov.Begins = w.auditCall
	w.prov.IsToEnd = w.isToEnd
	return w
}

// breaks records that something that must always hold does not.
func (w *world) breaks(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaksLocked(format, args...)
}

// breaksLocked is breaks with w.mu held.
func (w *world) breaksLocked(format string, args ...any) {
	if len(w.broken) < maxBroken {
		w.broken = append(w.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// know takes in what the API says of a pod.
func (w *world) know(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.pods[pod.UID]
	if f == nil {
		f = &fate{namespace: pod.Namespace, name: pod.Name, created: pod.CreationTimestamp.Time, node: pod.Spec.NodeName, never: pod.Spec.RestartPolicy == corev1.RestartPolicyNever}
		w.pods[pod.UID] = f
	}
	f.terminal = f.terminal || isTerminal(pod.Status.Phase)
	if pod.DeletionTimestamp == nil {
		return
	}
	end := pod.DeletionTimestamp.Time
	if w.look == nil { // it is known at once, and the server's clock may be wrong
		end = time.Now().Add(time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	if !f.deleted || end.Before(f.deadline) {
		f.deleted, f.deadline = true, end // which only comes nearer, also if it is known late
	}
}

// noticed is for how long a pod has to be missing to be lost.
const noticed = node.DefaultLostPodTimeout

// empties has the provider know nothing for a while.
func (w *world) empties(d time.Duration) {
	w.prov.Empty(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.empty) > noticed {
		w.emptied = now // before, it may not have been seen in between
	}
	if until := now.Add(d); until.After(w.empty) {
		w.empty = until
	}
	if w.empty.Sub(w.emptied) >= noticed {
		w.loses = w.empty
	}
}

// isToEnd reports whether a pod of that name that the provider holds is to be deleted in
// the API, or is gone.
func (w *world) isToEnd(name types.NamespacedName) bool {
	held := w.model.all()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(held, func(pod *corev1.Pod) bool {
		f := w.pods[pod.UID]
		return pod.Namespace == name.Namespace && pod.Name == name.Name && f != nil && (f.deleted || f.gone)
	})
}

// isEmpty reports whether the provider knows nothing, or did a moment ago. w.mu is
// held.
func (w *world) isEmpty() bool { return time.Since(w.empty) < 5*time.Second }

// mayLose reports whether the provider has known nothing for so long that a pod which
// was there then may count as lost. w.mu is held.
func (w *world) mayLose(created time.Time) bool { return created.Before(w.loses) }

// mayForget reports whether an agent may have ended a pod that counted as lost, and been
// replaced before the API knew of it. w.mu is held.
func (w *world) mayForget(f *fate) bool {
	return !f.terminal && w.mayLose(f.created) && w.started.After(w.emptied)
}

// excused reports whether nobody can demand that the agent does right by a pod. The
// provider has lied about its name; or it goes by names, and holds a pod that went
// from the API while no agent saw it. Then its successor of about the same age is
// taken for it: see "Identity" in docs/architecture.md.
func (w *world) excused(pod *corev1.Pod) bool {
	if w.prov.Lied(pod.Namespace, pod.Name) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.strangers {
		if !w.model.shape.byUID && s.name == pod.Name && !pod.CreationTimestamp.After(s.created.Add(clockSkew)) {
			return true
		}
	}
	return false
}

// clockSkew is by how much the ages of two pods have to differ to tell them apart.
const clockSkew = 61 * time.Second

// estrange records a pod that the provider holds, and the API no more,
// where no agent knows of it. w.mu is held.
func (w *world) estrange(f *fate) { w.strangers = append(w.strangers, f) }

// strange reports whether a pod of that name is one of them, and the provider goes by
// names. Once it has been taken for its successor, it is not looked for any more.
// w.mu is held.
func (w *world) strange(name string) bool {
	return !w.model.shape.byUID && slices.ContainsFunc(w.strangers, func(s *fate) bool { return s.name == name })
}

// lookAway records that there is no agent any more, which knew what the
// provider held.
func (w *world) lookAway() {
	held := w.model.all()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind = true
	for _, pod := range held {
		if f := w.pods[pod.UID]; f != nil && f.gone {
			w.estrange(f)
		}
	}
}

// agent is one run of a node.
type agent struct {
	node   *nodeutil.Node
	config nodeutil.ProviderConfig // of its provider
	cancel context.CancelFunc
	done   chan error
	cut    *switchable
}

// switchable is a way to the API server that a kill cuts.
type switchable struct {
	http.RoundTripper
	mu  sync.Mutex
	off bool
}

func (s *switchable) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	off := s.off
	s.mu.Unlock()
	if off {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, context.Canceled
	}
	return s.RoundTripper.RoundTrip(request)
}

// start starts an agent, unless there is one.
func (w *world) start() {
	if w.agent != nil {
		return
	}
	w.mu.Lock()
	w.stops, w.started = map[types.UID]time.Time{}, time.Now()
	w.mu.Unlock()
	cut := &switchable{RoundTripper: w.way}
	var config nodeutil.ProviderConfig
	made, err := nodeutil.NewNode(w.node,
		func(given nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			config = given
			return nodeutil.AsProvider(w.prov.Handler()), nil, nil
		},
		nodeutil.WithNodeConfig(nodeutil.NodeConfig{
			Client:        clientTo(w.host, cut),
			NodeSpec:      corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}, // else it looks for one, with the real network
			NumWorkers:    w.workers,
			EventRecorder: silent{},
		}))
	if err != nil {
		w.breaks("no agent could be made: %v", err)
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.agent = &agent{node: made, config: config, cancel: cancel, done: make(chan error, 1), cut: cut}
	done := w.agent.done
	go func() { done <- made.Run(ctx) }()
	go func() {
		select {
		case <-made.PodController().Ready():
			w.mu.Lock()
			w.blind = false
			w.mu.Unlock()
		case <-made.Done():
		}
	}()
}

// stop ends the agent, if there is one: with its last words, or without.
func (w *world) stop(kill bool) {
	if w.agent == nil {
		return
	}
	if kill {
		w.agent.cut.mu.Lock()
		w.agent.cut.off = true
		w.agent.cut.mu.Unlock()
	}
	w.agent.cancel()
	if err := <-w.agent.done; err != nil {
		w.breaks("the agent ended with an error: %v", err)
	}
	w.agent = nil
	w.lookAway()
}
