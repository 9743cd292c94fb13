package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/machinetest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

// lab is a driver whose machines are goroutines with an address of their own, in which a real
// agent serves the mock provider.
type lab struct {
	t    *testing.T
	port int

	mu       sync.Mutex
	machines map[string]*labMachine
	created  int           // machines that were made
	next     int           // of the addresses
	silent   bool          // agents do not start
	lost     int           // so many answers to creations get lost
	listErr  error         // of lists
	hidden   bool          // lists lack what was created since
	lists    int           // that were made
	making   int           // creations that go on
	most     int           // of them at the same time
	hold     chan struct{} // what creations wait for
	failing  bool          // nothing can be made
	lingers  bool          // machines that are deleted stay, ending
	quota    int           // how many machines there can be; 0 for any number
	nowhere  bool          // machines have no address, as far as the node is shown
	sending  chan struct{} // what agents wait for before they take a pod
	stubborn bool          // pods do not end before their machine
	mute     bool          // agents take pods, and the answer gets lost
	refusals int           // so many pods are not taken
	report   chan struct{} // what statuses wait for
}

type labMachine struct {
	Machine
	hidden   bool
	userData string
	spec     Spec
	key      []byte
	pods     *mock.Provider // which outlive the agent
	sent     bool           // the agent was asked to take a pod
	graces   []int64        // within which it was asked to end its pod
	stop     context.CancelFunc
	ended    chan struct{}
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, port: machinetest.FreePort(t), machines: map[string]*labMachine{}}
	t.Cleanup(func() {
		for _, m := range l.all() {
			m.stop()
			<-m.ended
		}
	})
	return l
}

func (l *lab) all() map[string]*labMachine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.machines)
}

// made is how many machines were made.
func (l *lab) made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.created
}

func (l *lab) set(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// Create implements Driver.
func (l *lab) Create(_ context.Context, spec Spec) (Machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making++
	defer func() { l.making-- }()
	l.most = max(l.most, l.making)
	if hold := l.hold; hold != nil {
		l.mu.Unlock()
		<-hold
		l.mu.Lock()
	}
	if l.failing {
		return Machine{}, errdefs.AsUnavailable(errors.New("out of order"))
	}
	m := l.machines[spec.Name]
	if m == nil && l.quota > 0 && len(l.machines) >= l.quota {
		return Machine{}, errdefs.AsRetryAfter(errdefs.AsUnavailable(errors.New("the quota is exhausted")), time.Millisecond)
	}
	if m == nil {
		l.created++
		l.next++
		m = &labMachine{hidden: l.hidden, userData: spec.UserData, spec: spec, ended: make(chan struct{})}
		m.Machine = Machine{ID: "i-" + strconv.Itoa(l.created), Name: spec.Name, Tags: spec.Tags, State: Running, Created: time.Now(), Address: fmt.Sprintf("127.0.1.%d", l.next)}
		l.machines[spec.Name] = m
		if l.silent {
			m.stop = func() {}
			close(m.ended)
		} else {
			l.boot(m)
		}
	}
	if l.lost > 0 {
		l.lost--
		return Machine{}, errdefs.AsUnavailable(errors.New("the answer got lost"))
	}
	return l.shown(m), nil
}

// shown is what the node is shown of a machine. l.mu is held.
func (l *lab) shown(m *labMachine) Machine {
	shown := m.Machine
	if l.nowhere {
		shown.Address = ""
	}
	return shown
}

// labPods are the pods of a machine, whose agent may be slow.
type labPods struct {
	*mock.Provider
	l *lab
	m *labMachine
}

// CreatePod implements nodeutil.Provider.
func (p labPods) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	p.l.mu.Lock()
	p.m.sent = true
	hold, mute, refuses := p.l.sending, p.l.mute, p.l.refusals > 0
	if refuses {
		p.l.refusals--
	}
	p.l.mu.Unlock()
	if refuses {
		return errors.New("not yet")
	}
	if hold != nil {
		<-hold
	}
	err := p.Provider.CreatePod(ctx, pod)
	if mute {
		return errdefs.AsUnavailable(errors.New("the answer got lost"))
	}
	return err
}

// DeletePod implements nodeutil.Provider.
func (p labPods) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	p.l.mu.Lock()
	p.m.graces = append(p.m.graces, ptr.Deref(pod.DeletionGracePeriodSeconds, -1))
	stubborn := p.l.stubborn
	p.l.mu.Unlock()
	if stubborn {
		return nil
	}
	return p.Provider.DeletePod(ctx, pod)
}

// NotifyPods implements node.PodNotifier.
func (p labPods) NotifyPods(ctx context.Context, notify func(*corev1.Pod)) {
	p.Provider.NotifyPods(ctx, func(pod *corev1.Pod) {
		p.l.mu.Lock()
		report := p.l.report
		p.l.mu.Unlock()
		if report == nil {
			notify(pod)
			return
		}
		pod = pod.DeepCopy()
		go func() {
			<-report
			notify(pod)
		}()
	})
}

// boot starts the agent of a machine, once more if it has ended. l.mu is held.
func (l *lab) boot(m *labMachine) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.ended = cancel, make(chan struct{})
	go l.run(ctx, m, m.ended)
}

// run is the machine: a real agent.
func (l *lab) run(ctx context.Context, m *labMachine, ended chan struct{}) {
	defer close(ended)
	l.mu.Lock()
	key, err := m.key, error(nil)
	if key == nil { // which outlives the agent
		key, err = agent.NewKey()
		m.key = key
	}
	l.mu.Unlock()
	if err != nil {
		l.t.Error(err)
		return
	}
	machinetest.RunAgent(ctx, l.t, m.userData, m.Address, key, func(c mock.Config) (nodeutil.Provider, node.NodeProvider, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		var err error
		if m.pods == nil {
			m.pods, err = mock.New(c)
		}
		return labPods{m.pods, l, m}, m.pods, err
	})
}

// Delete implements Driver.
func (l *lab) Delete(_ context.Context, m Machine) error {
	l.mu.Lock()
	known := l.machines[m.Name]
	if l.lingers && known != nil {
		known.State = Ending
	}
	stays := known == nil || known.State == Ending
	l.mu.Unlock()
	if !stays {
		l.kill(m.Name)
	}
	return nil
}

// kill ends a machine.
func (l *lab) kill(name string) {
	l.mu.Lock()
	m := l.machines[name]
	delete(l.machines, name)
	var stop context.CancelFunc
	var ended chan struct{}
	if m != nil {
		stop, ended = m.stop, m.ended
	}
	l.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
}

// List implements Driver.
func (l *lab) List(_ context.Context, tags map[string]string) (found []Machine, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	for _, m := range l.machines {
		if !m.hidden {
			found = append(found, l.shown(m)) // with those of others, which a node has to leave alone
		}
	}
	return found, l.listErr
}

// Console implements Driver.
func (l *lab) Console(context.Context, Machine, int) (string, error) { return "kernel panic", nil }

// world is a cluster with a node.
type world struct {
	t       *testing.T
	lab     *lab
	cluster *grouptest.Cluster
	cfg     Config
	adjust  func(*nodeutil.ProviderConfig)
	retry   time.Duration // in place of firstBootRetry
	driver  Driver        // the lab, unless the configuration has another
	notify  func(*corev1.Pod)

	provider nodeutil.Provider
	backend  *backend
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, lab: newLab(t), cluster: grouptest.NewCluster("cluster-uid")}
	w.driver = w.lab
	port := machinetest.FreePort(t)
	w.cfg = Config{
		Cluster: "home", StateDir: t.TempDir(), AgentPort: w.lab.port,
		Bootstrap: BootstrapConfig{Listen: fmt.Sprintf("127.0.0.1:%d", port), URL: fmt.Sprintf("https://127.0.0.1:%d", port)},
		Refresh:   metav1.Duration{Duration: 100 * time.Millisecond}, MissingTimeout: metav1.Duration{Duration: 300 * time.Millisecond},
	}
	return w
}

// start starts the node, as a process does that begins again.
func (w *world) start() *world {
	w.t.Helper()
	init := w.cluster.Config()
	if w.adjust != nil {
		w.adjust(&init)
	}
	b, err := newBackend(init, w.cfg, w.driver)
	if err != nil {
		w.t.Fatal(err)
	}
	b.pingInterval = 100 * time.Millisecond
	b.greetTimeout = time.Minute // on a busy machine, too; one whose agent has ended refuses at once
	b.firstRetry = cmp.Or(w.retry, b.firstRetry)
	p, _, err := podgroup.New(init, b, b.options())
	if err != nil {
		w.t.Fatal(err)
	}
	w.provider, w.backend = p, b
	if notifier, ok := handlerOf(p).(node.PodNotifier); ok {
		notify := w.notify
		if notify == nil {
			notify = func(*corev1.Pod) {}
		}
		notifier.NotifyPods(w.t.Context(), notify)
	}
	w.t.Cleanup(w.stop)
	return w
}

func (w *world) stop() {
	if w.provider != nil {
		grouptest.Close(w.t, w.provider)
		w.provider = nil
	}
}

// pod is a pod of the cluster.
func (w *world) pod(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", name, types.UID("uid-"+name)
	pod.CreationTimestamp = metav1.Now()
	pod.Spec.RestartPolicy, pod.Spec.NodeName = corev1.RestartPolicyNever, "vk"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox"}}
	w.cluster.SetPod(pod)
	return pod
}

// run creates a pod, as the pod controller does: again after an error that says so.
func (w *world) run(name string) *corev1.Pod {
	w.t.Helper()
	pod := w.pod(name)
	w.eventually("pod "+name+" is created", func() error { return w.provider.CreatePod(w.t.Context(), pod) })
	w.eventually("pod "+name+" runs", func() error { return w.hasPhase(pod, corev1.PodRunning) })
	return pod
}

func (w *world) hasPhase(pod *corev1.Pod, phase corev1.PodPhase) error {
	status, err := w.status(pod)
	if err == nil && status.Phase != phase {
		err = fmt.Errorf("it is %s: %s", status.Phase, status.Message)
	}
	return err
}

func (w *world) status(pod *corev1.Pod) (*corev1.PodStatus, error) {
	return handlerOf(w.provider).(node.PodUIDLifecycleHandler).GetPodStatusByUID(w.t.Context(), pod.Namespace, pod.Name, pod.UID)
}

// only returns the one machine that there is.
func (w *world) only() *labMachine {
	w.t.Helper()
	all := w.lab.all()
	if len(all) != 1 {
		w.t.Fatalf("there are %d machines, not one", len(all))
	}
	for _, m := range all {
		return m
	}
	return nil
}

func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	machinetest.Eventually(w.t, what, check)
}

// isDeleted waits until the node has asked for the end of a machine, which lingers.
func (w *world) isDeleted(m *labMachine) {
	w.t.Helper()
	w.eventually("machine "+m.Name+" is deleted", func() error {
		w.lab.mu.Lock()
		defer w.lab.mu.Unlock()
		if m.State != Ending {
			return errors.New("it is not")
		}
		return nil
	})
}

// never checks that something does not come about while lists are made.
func (w *world) never(what string, check func() bool) {
	w.t.Helper()
	for range 15 {
		if check() {
			w.t.Fatal(what)
		}
		time.Sleep(w.cfg.Refresh.Duration)
	}
}
