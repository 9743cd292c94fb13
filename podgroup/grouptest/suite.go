package grouptest

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Suite checks what holds for every backend of package podgroup.
type Suite struct {
	// New makes a backend whose service is a fake on w. It is called in a bubble of
	// testing/synctest, several times for one World where the agent is started again.
	// Connections to the fake have to be in memory (see Dialer).
	New func(t *testing.T, w *World) (podgroup.Backend, podgroup.Options)
	// Actions are the names that the fake gives to World.Serve for the calls of these
	// actions: create and list at least.
	Actions map[podgroup.Action]string
	// Budget is the quota of calls a minute for the check with 1000 pods, of which the
	// backend has one in Options.Budget. Defaults to 2000.
	Budget int
	// RestartPolicy is that of the pods of checks in which no container ends. Defaults to
	// Always.
	RestartPolicy corev1.RestartPolicy
	// CallsPerList is how many calls a list takes whose units all are on one page. Defaults
	// to 1.
	CallsPerList int
	// Skip are checks, by name, that are left out, each with the reason.
	Skip map[string]string
}

// run is one run of a check.
type run struct {
	*testing.T
	suite   Suite
	world   *World
	cluster *Cluster
	p       nodeutil.Provider
	n       node.NodeProvider
	backend podgroup.Backend
}

// Run makes the checks.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			if reason := s.Skip[check.name]; reason != "" {
				t.Skip(reason)
			}
			synctest.Test(t, func(t *testing.T) {
				r := &run{T: t, suite: s, world: New(time.Second), cluster: NewCluster("home")}
				r.start()
				if check.needs == nil || check.needs(r.backend) {
					check.run(r)
				}
			})
		})
	}
	for name := range s.Skip {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			t.Errorf("Skip names the check %s, which does not exist", name)
		}
	}
}

type check struct {
	name  string
	needs func(podgroup.Backend) bool // whether the backend can do it; nil is always
	run   func(*run)
}

func is[T any](b podgroup.Backend) bool {
	_, ok := b.(T)
	return ok
}

func hasLogs(b podgroup.Backend) bool {
	return is[podgroup.LogReader](b) || is[podgroup.LogStreamer](b)
}

var checks = []check{
	{"a pod's life", nil, life},
	{"an answer to a creation is lost", nil, lostCreation},
	{"a second unit of a pod", is[podgroup.Lister], secondUnit},
	{"the agent starts again", nil, restart},
	{"a pod ends while the agent is away", nil, endsWhileAway},
	{"a unit without a pod", is[podgroup.Lister], orphan},
	{"units of another cluster", is[podgroup.Lister], foreign},
	{"the configuration leads to another place", is[podgroup.Lister], anotherPlace},
	{"too many calls", nil, throttled},
	{"a list that fails", nil, failedList},
	{"what the service does not have", nil, unsupported},
	{"1000 pods", nil, manyPods},
	{"a file changes", is[podgroup.Updater], changedFile},
	{"a token is renewed", is[podgroup.Updater], renewedToken},
	{"logs", hasLogs, followedLog},
	{"an unchanged node costs one list a round", is[podgroup.Lister], quiet},
}

// start starts the agent, again if it runs.
func (r *run) start() {
	r.Helper()
	if r.p != nil {
		Close(r.T, r.p)
	}
	backend, options := r.suite.New(r.T, r.world)
	r.backend = backend
	r.p, r.n = r.cluster.Start(r.T, backend, options)
	if notifier, ok := r.p.(node.PodNotifier); ok {
		notifier.NotifyPods(r.Context(), func(*corev1.Pod) {})
		synctest.Wait()
	}
}

func (r *run) action(a podgroup.Action) string {
	name, ok := r.suite.Actions[a]
	if !ok {
		r.Fatalf("Suite.Actions does not name %s", a)
	}
	return name
}

// create creates a pod, as the controller does.
func (r *run) create(pod *corev1.Pod) {
	r.Helper()
	r.cluster.SetPod(pod)
	if err := r.p.CreatePod(r.Context(), pod); err != nil {
		r.Fatalf("CreatePod: %v", err)
	}
}

// until waits for f to hold, in virtual time.
func (r *run) until(what string, f func() bool) {
	r.Helper()
	for range 600 {
		if f() {
			return
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	r.Fatalf("%s is not so after ten minutes", what)
}

// status returns the status of a pod, or nil if the provider does not have it.
func (r *run) status(pod *corev1.Pod) *corev1.PodStatus {
	r.Helper()
	status, err := r.p.(node.PodUIDLifecycleHandler).GetPodStatusByUID(r.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil && !errdefs.IsNotFound(err) {
		r.Fatalf("GetPodStatusByUID: %v", err)
	}
	return status
}

// pods returns the pods of the provider.
func (r *run) pods() []*corev1.Pod {
	r.Helper()
	pods, err := r.p.GetPods(r.Context())
	if err != nil {
		r.Fatalf("GetPods: %v", err)
	}
	return pods
}

func (r *run) isRunning(pod *corev1.Pod) func() bool {
	return func() bool {
		status := r.status(pod)
		return status != nil && status.Phase == corev1.PodRunning
	}
}

// units are the units of a pod that have not ended.
func (r *run) units(pod *corev1.Pod) []Unit {
	return r.world.Units(func(u *Unit) bool {
		return u.Tags[podgroup.TagPodName] == pod.Name && !u.Over() && u.Phase != podgroup.Stopping
	})
}

func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// pod returns a pod in which no container ends.
func (r *run) pod(name string) *corev1.Pod {
	pod := NewPod(name)
	pod.Spec.RestartPolicy = cmp.Or(r.suite.RestartPolicy, pod.Spec.RestartPolicy)
	return pod
}
