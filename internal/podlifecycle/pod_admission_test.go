package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// admitting has a controller know its node: one of a few CPUs, as it is known, and as
// the API server has it.
type admitting struct {
	mu           sync.Mutex
	known, fresh *corev1.Node
	err          error
	reads        int // of the API server
}

func withCPUs(cpus string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{"zone": "a"}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpus), "pods": resource.MustParse("110")}
	return n
}

func admittingTo(node *corev1.Node) *admitting { return &admitting{known: node, fresh: node} }

func (a *admitting) use(cfg *Config) {
	cfg.Node = func(_ context.Context, fresh bool) (*corev1.Node, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !fresh {
			return a.known, a.err
		}
		a.reads++
		return a.fresh, a.err
	}
}

func (a *admitting) set(known, fresh *corev1.Node, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.fresh, a.err = known, fresh, err
}

func asking(cpus string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpus)}
	}
}

// A pod that does not fit is Failed in the kubelet's words, never reaches the
// provider, and stays so after a restart, also once there is room.
func TestPodThatDoesNotFitIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		node := admittingTo(withCPUs("4"))
		r.start(node.use)
		first := r.api.AddPod(aPod("first", asking("3")))
		pass(time.Second)
		r.events.recorded()
		r.api.AddPod(aPod("second", asking("2")))
		pass(time.Second)
		status := r.api.Pod("second").Status
		want(t, "status", []string{string(status.Phase), status.Reason, status.Message}, []string{"Failed", "OutOfcpu",
			"Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"})
		want(t, "generation that was rejected", status.ObservedGeneration, r.api.Pod("second").Generation)
		wantList(t, "events", r.events.recorded(), "Warning OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000")
		wantList(t, "calls", r.provider.TakeCalls("create"), "create first "+string(first.UID))
		want(t, "phase of the first", r.phase("first"), corev1.PodRunning)

		r.api.DeletePod("first", 0)
		pass(time.Minute)
		r.end()
		r.start(node.use)
		pass(time.Minute)
		want(t, "phase", r.phase("second"), corev1.PodFailed)
		wantList(t, "calls", r.provider.TakeCalls("create"))
		r.api.AddPod(aPod("third", asking("4")))
		pass(time.Second)
		want(t, "phase of one that fits", r.phase("third"), corev1.PodRunning)
		r.api.DeletePod("second")
		pass(time.Minute)
		want(t, "the rejected pod, deleted", r.api.Pod("second"), nil)
	})
}

// What has ended, was deleted or asks for less makes room; what is being stopped does
// not yet.
func TestRoomOfPods(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *rig)
		admits bool
	}{
		"runs":      {func(*rig) {}, false},
		"has ended": {func(r *rig) { r.provider.SetPhase("first", corev1.PodSucceeded) }, true},
		"is being stopped": {func(r *rig) {
			r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
			r.api.DeletePod("first")
		}, false},
		"is gone":       {func(r *rig) { r.api.DeletePod("first", 0) }, true},
		"asks for less": {func(r *rig) { r.api.ChangePod("first", asking("1")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start(admittingTo(withCPUs("4")).use)
				r.api.AddPod(aPod("first", asking("3")))
				pass(time.Second)
				tc.change(r)
				pass(time.Second)
				r.api.AddPod(aPod("second", asking("2")))
				pass(time.Second)
				want(t, "admitted", r.phase("second") == corev1.PodRunning, tc.admits)
			})
		})
	}
}

// Invariant 8: pods that run when the agent is started are not rejected, however small
// the node is by then; of those that wait the older come first.
func TestAdmissionAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		node := admittingTo(withCPUs("8"))
		r.start(node.use)
		for _, name := range []string{"a", "b"} {
			r.api.AddPod(aPod(name, asking("2")))
		}
		r.api.AddPod(aPod("waits", asking("2"), needs(false))) // admitted, and not created
		pass(time.Second)
		r.end()

		for i := range 5 {
			r.api.AddPod(aPod(fmt.Sprint("new-", i), asking("1")))
			pass(time.Second)
		}
		node.set(withCPUs("8"), withCPUs("8"), nil)
		r.start(node.use)
		pass(time.Second)
		for name, phase := range map[string]corev1.PodPhase{
			"a": corev1.PodRunning, "b": corev1.PodRunning, "waits": corev1.PodPending,
			"new-0": corev1.PodRunning, "new-1": corev1.PodRunning, "new-2": corev1.PodFailed, "new-3": corev1.PodFailed, "new-4": corev1.PodFailed,
		} {
			want(t, "phase of "+name, r.phase(name), phase)
		}
		r.end()
		node.set(withCPUs("1"), withCPUs("1"), nil)
		r.start(node.use)
		pass(time.Hour)
		for _, name := range []string{"a", "b", "new-0", "new-1"} {
			want(t, "phase of "+name, r.phase(name), corev1.PodRunning)
		}
		wantList(t, "calls", r.provider.TakeCalls("delete"))
	})
}

// Admitted once a pod stays so, although its creation fails for a while and the node
// shrinks.
func TestAdmittedPodsStay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		node := admittingTo(withCPUs("4"))
		r.provider.Script(func(s *nodetest.Script) {
			s.OnCreate = func(context.Context, *corev1.Pod) error { return errors.New("not yet") }
		})
		r.start(node.use)
		r.api.AddPod(aPod("web", asking("3")))
		pass(time.Minute)
		node.set(withCPUs("1"), withCPUs("1"), nil)
		pass(time.Minute)
		r.provider.Script(func(s *nodetest.Script) { s.OnCreate = nil })
		pass(2 * time.Minute)
		want(t, "phase", r.phase("web"), corev1.PodRunning)
	})
}

// The scheduler may know the node better than the controller does, which hears of a
// change a moment later: before a pod is rejected the API server is asked, and only then.
func TestRejectionIsConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		node := admittingTo(withCPUs("1"))
		grown := withCPUs("4")
		grown.Labels["zone"] = "b"
		node.set(withCPUs("1"), grown, nil)
		r.start(node.use)
		r.api.AddPod(aPod("small", asking("1")))
		pass(time.Second)
		want(t, "reads", node.reads, 0)
		r.api.AddPod(aPod("big", asking("2")))
		r.api.AddPod(aPod("labelled", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }))
		pass(time.Second)
		for _, name := range []string{"small", "big", "labelled"} {
			want(t, "phase of "+name, r.phase(name), corev1.PodRunning)
		}
		want(t, "reads", node.reads, 2)
	})
}

// While the node is not known nobody is rejected, and nobody created.
func TestAdmissionWaitsForTheNode(t *testing.T) {
	for name, err := range map[string]error{"none yet": nil, "not registered": errdefs.NotFound("no such node"), "away": errors.New("connection refused")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				node := admittingTo(nil)
				node.set(nil, nil, err)
				r.start(node.use)
				r.api.AddPod(aPod("web", asking("1")))
				pass(10 * time.Second)
				want(t, "phase", r.phase("web"), corev1.PodPending)
				wantList(t, "calls", r.provider.TakeCalls("create"))
				node.set(withCPUs("4"), withCPUs("4"), nil)
				pass(time.Minute)
				want(t, "phase", r.phase("web"), corev1.PodRunning)
			})
		})
	}
}

// claiming prepares the claims of pods.
type claiming struct{ nodetest.Notifying }

func (claiming) PreparesResourceClaims(*corev1.Pod) bool { return true }

// A pod with resource claims does not run without its devices.
func TestResourceClaims(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			if prepared {
				r.handler = claiming{r.provider.Notifying()}
			}
			r.start(admittingTo(withCPUs("4")).use)
			r.api.AddPod(aPod("gpu", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }))
			pass(time.Second)
			status := r.api.Pod("gpu").Status
			if prepared {
				want(t, "phase", status.Phase, corev1.PodRunning)
			} else if status.Phase != corev1.PodFailed || status.Reason != "UnexpectedAdmissionError" || !strings.HasPrefix(status.Message, "Pod was rejected: the node's provider does not prepare resource claims (gpu)") {
				t.Errorf("got %s, %s: %s", status.Phase, status.Reason, status.Message)
			}
		})
	}
}

// Many pods that come at once get no more than there is.
func TestManyPodsAreAdmittedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(admittingTo(withCPUs("5")).use)
		for i := range 50 {
			r.api.AddPod(aPod(fmt.Sprint("pod-", i), asking("1")))
		}
		pass(time.Minute)
		phases := map[corev1.PodPhase]int{}
		for i := range 50 {
			phases[r.phase(fmt.Sprint("pod-", i))]++
		}
		want(t, "phases", phases, map[corev1.PodPhase]int{corev1.PodRunning: 5, corev1.PodFailed: 45})
	})
}
