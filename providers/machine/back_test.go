package machine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// comesBack has a machine that was lost run again, with its pod.
func (l *lab) comesBack(m *labMachine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.machines[m.Name] = m
	l.boot(m)
}

// has reports whether a machine is in a lab, and has its pod.
func (l *lab) has(m *labMachine, pod *corev1.Pod) bool {
	l.mu.Lock()
	pods := m.pods
	l.mu.Unlock()
	if pods == nil {
		return false
	}
	held, err := pods.GetPod(context.Background(), pod.Namespace, pod.Name)
	return err == nil && held != nil
}

// A machine that was lost comes back while another one starts: that one is not given the pod before
// the first is gone.
func TestMachineComesBackInAReplacement(t *testing.T) {
	w := replacing(t).start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	first := w.only()
	w.lab.set(func() { w.lab.silent = true })
	w.lab.kill(first.Name)
	w.eventually("another machine starts", func() error {
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		for name, m := range w.backend.members {
			if name != first.Name && m.made {
				return nil
			}
		}
		return errors.New("there is none")
	})
	next := w.only()
	w.lab.set(func() { w.lab.silent, w.lab.lingers = false, true })
	w.lab.comesBack(first)
	w.lab.set(func() { w.lab.boot(next) })
	w.isDeleted(first)
	w.never("both have the pod", func() bool { return w.lab.has(next, pod) })
	w.lab.set(func() { w.lab.lingers = false })
	w.lab.kill(first.Name)
	w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, 1) })
}

// A machine that was lost comes back while it is not time yet for another one: it is ended at once.
func TestMachineComesBackBeforeAReplacement(t *testing.T) {
	w := replacing(t)
	w.retry = time.Hour
	w.start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	first := w.only()
	w.lab.kill(first.Name)
	w.eventually("another machine is made later", func() error {
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		if m := w.backend.members[first.Name]; m.busy || time.Until(m.again) < time.Minute {
			return errors.New("not yet")
		}
		return nil
	})
	w.lab.comesBack(first)
	w.eventually("the machine is ended", func() error {
		if w.lab.of(first.Name) != nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.never("it has the pod", func() bool { return w.restarted(pod, 0) == nil })
}

// A machine that comes back after it was replaced is ended, and its token is worth nothing.
func TestMachineComesBackAfterAReplacement(t *testing.T) {
	w := replacing(t).start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	first := w.only()
	w.lab.kill(first.Name)
	w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, 1) })
	next := w.only()
	token := newCaller(t, first).bootstrap.Token
	w.backend.mu.Lock()
	w.backend.members["back"] = &member{listed: true, machine: Machine{Name: "back", Tags: first.Tags}}
	w.backend.mu.Unlock()
	if _, err := w.backend.admit("back", token, "key"); !errors.Is(err, errToken) {
		t.Errorf("its token is taken again: %v", err)
	}
	w.backend.mu.Lock()
	delete(w.backend.members, "back")
	w.backend.mu.Unlock()
	w.lab.comesBack(first)
	w.eventually("the machine is ended", func() error {
		if w.lab.of(first.Name) != nil {
			return errors.New("it is there")
		}
		return nil
	})
	if err := w.restarted(pod, 1); err != nil || w.only().Name != next.Name {
		t.Errorf("the pod has left its machine: %v", err)
	}
}

// A list that lacks the machine that is being deleted, since its agent is away, is no reason to make
// another one: it may still run.
func TestListLacksAnUnreachableMachine(t *testing.T) {
	w := replacing(t)
	w.cfg.UnreachableTimeout = metav1.Duration{Duration: 300 * time.Millisecond}
	w.cfg.MissingTimeout = metav1.Duration{Duration: time.Hour}
	w.lab.lingers = true
	w.start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	m := w.only()
	w.lab.halt(m)
	w.isDeleted(m)
	w.lab.set(func() { m.hidden = true })
	w.never("another machine was made", func() bool { return w.lab.made() != 1 })
	w.lab.set(func() { m.hidden, m.State = false, Ended })
	w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, 1) })
}

// asked is an agent that records the grace periods within which it is to end its pod.
type asked struct {
	nodeutil.Provider
	pod    *corev1.Pod
	graces []int64
}

func (a *asked) GetPod(context.Context, string, string) (*corev1.Pod, error) { return a.pod, nil }

func (a *asked) DeletePod(_ context.Context, pod *corev1.Pod) error {
	a.graces = append(a.graces, *pod.DeletionGracePeriodSeconds)
	return nil
}

// A second notice that a machine is taken sooner shortens the time that its pod has; a later one
// does not give it more.
func TestMachineThatIsTakenSooner(t *testing.T) {
	cluster := grouptest.NewCluster("cluster-uid")
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", "a", "uid-a"
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(600))
	cluster.SetPod(pod)
	init, dir := cluster.Config(), records{t.TempDir()}
	init.Events = nil
	synctest.Test(t, func(t *testing.T) {
		agent := &asked{pod: pod}
		l := &link{ready: make(chan struct{}), provider: agent, owner: podgroup.OwnerOf(pod), address: "192.0.2.1"}
		close(l.ready)
		tags := map[string]string{podgroup.TagNamespace: "default", podgroup.TagPodName: "a", podgroup.TagUID: "uid-a"}
		m := &member{machine: Machine{Name: "a-1", Address: l.address, Tags: tags}, record: &record{Name: "a-1", Tags: tags, Given: true}, link: l}
		b := &backend{init: init, records: dir, members: map[string]*member{"a-1": m}}
		b.ctx, b.cancel = context.WithCancel(t.Context())
		defer b.cancel()
		for _, left := range []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Second, -time.Hour} {
			m.machine.TakenAt = time.Now().Add(left)
			b.endTaken()
			synctest.Wait()
			b.endTaken() // the same notice is none
			synctest.Wait()
		}
		if want := []int64{300, 30, 1}; !slices.Equal(agent.graces, want) {
			t.Errorf("the pod is to end within %v seconds, not %v", agent.graces, want)
		}
	})
}

// What a driver lists of names that no machine has is not the node's: records are files of these
// names.
func TestNamesOfMachines(t *testing.T) {
	b := &backend{cfg: Config{Cluster: "home"}, node: "vk"}
	is := func(name string) bool {
		return b.isOurs(Machine{Name: name, Tags: map[string]string{podgroup.TagClusterName: "home", podgroup.TagNodeName: "vk", podgroup.TagClusterUID: "uid", podgroup.TagUID: "1", tagMachine: name}}, "uid")
	}
	if !is("default-a-0123456789-12") {
		t.Error("a machine of the node is not its own")
	}
	for _, name := range []string{"", "../a", "a/b", "A", "-a", "a-", "a\n", strings.Repeat("a", 64)} {
		if is(name) {
			t.Errorf("%q is a machine of the node", name)
		}
	}
}
