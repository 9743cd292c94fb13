package machine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/machinetest"
)

// halt ends the agent of a machine, which goes on.
func (l *lab) halt(m *labMachine) {
	m.stop()
	<-m.ended
}

func (l *lab) of(name string) *labMachine { return l.all()[name] }

// silence waits until an agent has not answered for some time.
func (w *world) silence(name string) {
	w.t.Helper()
	w.eventually("agent "+name+" does not answer", func() error {
		w.backend.mu.Lock()
		l := w.backend.members[name].link
		w.backend.mu.Unlock()
		if l == nil || l.answers() {
			return errors.New("it does")
		}
		return nil
	})
}

// A machine whose agent is out of reach is deleted after unreachableTimeout. Its pod has failed only
// when nothing of it can run any more.
func TestUnreachableMachine(t *testing.T) {
	w := newWorld(t)
	w.cfg.UnreachableTimeout = metav1.Duration{Duration: 500 * time.Millisecond}
	w.lab.lingers = true
	w.start()
	pod := w.run("a")
	m := w.only()
	w.lab.halt(m)
	w.isDeleted(m)
	w.never("the pod has failed before its machine is gone", func() bool { return w.hasPhase(pod, corev1.PodRunning) != nil })
	w.lab.kill(m.Name)
	w.eventually("the pod fails", func() error { return w.hasPhase(pod, corev1.PodFailed) })
	if status, err := w.status(pod); err != nil || status.Reason != reasonUnreachable {
		t.Errorf("its reason is %q: %v", status.Reason, err)
	}
	if w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// That a node which begins again has not connected with its machines yet is no fault of its network.
func TestNoGuardBeforeMachinesAreAsked(t *testing.T) {
	b := &backend{ctx: t.Context(), members: map[string]*member{}}
	for i := range massSilence {
		name := fmt.Sprint("a-", i)
		b.members[name] = &member{machine: Machine{Name: name, State: Running}, record: &record{Given: true}, link: &link{tried: time.Now().Add(-time.Second)}}
	}
	if b.endFinished(); b.guards {
		t.Error("they are taken to be out of reach")
	}
	for _, m := range b.members {
		m.link.answered(errors.New("no answer"))
	}
	if b.endFinished(); !b.guards {
		t.Error("they are out of reach, which is not taken for the fault of the network")
	}
}

// The network of the node is the cause also where most that cannot be reached are in reserve. When it is
// back they are not ended before they were asked again.
func TestReserveWhileTheNodeReachesNoMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeout := 5 * time.Minute
		b := &backend{
			ctx: t.Context(), members: map[string]*member{}, kinds: []kind{{key: "k"}},
			cfg: Config{UnreachableTimeout: metav1.Duration{Duration: timeout}, BootTimeout: metav1.Duration{Duration: 10 * time.Minute}},
		}
		for i := range massSilence {
			name := fmt.Sprint("reserve-", i)
			b.members[name] = &member{
				machine: Machine{Name: name, State: Running, Address: "192.0.2.1", Tags: map[string]string{tagReserve: "k"}},
				planned: true, listed: true, since: time.Now(), record: &record{}, deaf: time.Now(),
			}
		}
		if b.endFinished(); b.guards {
			t.Error("agents that do not listen yet are taken for the fault of the network")
		}
		look := func(times int) (ended int) {
			for range times {
				time.Sleep(15 * time.Second)
				b.endFinished()
			}
			for _, m := range b.members {
				if b.whySuperfluousLocked(m) != "" {
					ended++
				}
			}
			return ended
		}
		if ended := look(60); ended != 0 || !b.guards {
			t.Errorf("%d machines are ended while none can be reached", ended)
		}
		for _, name := range []string{"reserve-0", "reserve-1"} {
			b.members[name].deaf, b.members[name].greeted = time.Time{}, true
		}
		if ended := look(1); ended != 0 || b.guards {
			t.Errorf("%d machines are ended as soon as the network is back", ended)
		}
		if ended := look(int(timeout/(15*time.Second)) + 1); ended != 1 {
			t.Errorf("%d machines are ended, not the one that cannot be reached for long", ended)
		}
	})
}

// answers waits until the agent of a machine answers.
func (w *world) answers(name string) {
	w.t.Helper()
	w.eventually("agent "+name+" answers", func() error {
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		if l := w.backend.members[name].link; l == nil || !l.answers() {
			return errors.New("it does not")
		}
		return nil
	})
}

// An agent that begins again, or was out of reach for less than unreachableTimeout, has its pod.
func TestAgentThatIsAwayForAMoment(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	m := w.only()
	w.lab.halt(m)
	w.silence(m.Name)
	if err := w.hasPhase(pod, corev1.PodRunning); err != nil {
		t.Errorf("while its agent is away: %v", err)
	}
	w.lab.set(func() { w.lab.boot(m) })
	w.answers(m.Name)
	w.never("the pod has failed", func() bool { return w.hasPhase(pod, corev1.PodRunning) != nil })
	if w.only().Name != m.Name || w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// A pod that is deleted while its agent is away ends when that is back, within what is left of its grace
// period, and not at the end of it. One that the agent has lost meanwhile is over.
func TestDeletionWhileAnAgentIsAway(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newWorld(t).start()
		pod := w.run("a").DeepCopy()
		m := w.only()
		w.lab.halt(m)
		w.silence(m.Name)
		pod.DeletionGracePeriodSeconds = ptr.To(int64(3600))
		if err := w.provider.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		w.lab.set(func() {
			if lost {
				m.pods = nil
			}
			w.lab.boot(m)
		})
		w.isGone(m.Name)
		w.lab.set(func() {
			if !lost && (len(m.graces) != 1 || m.graces[0] < 3000 || m.graces[0] > 3600) {
				t.Errorf("the agent was asked to end it within %v seconds", m.graces)
			}
		})
		w.stop()
	}
}

// The pod of a machine that begins again without it has failed, though the agent answers.
func TestMachineThatBeginsAgainWithoutItsPod(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	m := w.only()
	w.lab.halt(m)
	w.lab.set(func() { m.pods = nil; w.lab.boot(m) })
	w.eventually("the pod fails", func() error { return w.hasPhase(pod, corev1.PodFailed) })
	if status, err := w.status(pod); err != nil || status.Reason != reasonLost {
		t.Errorf("its reason is %q: %v", status.Reason, err)
	}
	if w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// A machine that begins again may have another address, which is the pod's from then on.
func TestMachineWithAnotherAddress(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	m := w.only()
	w.lab.halt(m)
	w.silence(m.Name)
	w.lab.set(func() { m.Address = "127.0.2.1"; w.lab.boot(m) })
	w.answers(m.Name)
	w.eventually("the pod runs at the new address", func() error {
		status, err := w.status(pod)
		if err == nil && (status.Phase != corev1.PodRunning || status.PodIP != "127.0.2.1") {
			err = fmt.Errorf("it is %s at %s", status.Phase, status.PodIP)
		}
		return err
	})
}

// Where most machines are out of reach it is the network of the node that has failed: none is
// deleted. One among many that answer is.
func TestNodeThatReachesNoMachine(t *testing.T) {
	w := newWorld(t)
	w.cfg.UnreachableTimeout = metav1.Duration{Duration: 6 * time.Second} // within which two agents have begun again, on a busy machine, too
	w.start()
	var pods []*corev1.Pod
	for i := range massSilence {
		pods = append(pods, w.run(fmt.Sprint("p", i)))
	}
	all := w.lab.all()
	for _, m := range all { // at once, as far as one ping can see
		m.stop()
	}
	for name, m := range all {
		<-m.ended
		w.silence(name)
	}
	for begun := time.Now(); time.Since(begun) < 2*w.cfg.UnreachableTimeout.Duration; {
		w.never("a machine was deleted", func() bool { return len(w.lab.all()) != massSilence })
	}
	for _, pod := range pods {
		if err := w.hasPhase(pod, corev1.PodRunning); err != nil {
			t.Error(err)
		}
	}
	w.lab.set(func() {
		n := 0
		for _, m := range w.lab.machines {
			if n++; n < massSilence { // which come back at different times
				w.lab.boot(m)
			}
		}
	})
	w.eventually("the one that is left out of reach is deleted", func() error {
		if n := len(w.lab.all()); n != massSilence-1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// The time in which the node itself was stopped is no silence of the agent.
func TestNodeThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{tried: time.Now()}
		time.Sleep(time.Hour)
		away := errors.New("no answer")
		if l.answered(away); l.silentFor() > maxPause {
			t.Errorf("an hour in which nothing was asked counts as %v of silence", l.silentFor())
		}
		for range 60 {
			time.Sleep(pingInterval)
			l.answered(away)
		}
		if l.silentFor() < 5*time.Minute {
			t.Errorf("five minutes without an answer count as %v", l.silentFor())
		}
		if l.answered(nil); l.silentFor() != 0 {
			t.Errorf("after an answer it is silent for %v", l.silentFor())
		}
	})
}

// noPods is the provider of an agent that does not have its pod.
type noPods struct{ nodeutil.Provider }

func (noPods) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return nil, errdefs.NotFound("there is none")
}

// An agent that begins again twice, each time without its pod for a moment, has not lacked it all the time
// between.
func TestAgentThatBeginsAgainTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timeout := time.Minute
		b := &backend{ctx: t.Context(), members: map[string]*member{}, changed: make(chan struct{}), cfg: Config{MissingTimeout: metav1.Duration{Duration: timeout}}}
		b.records = records{t.TempDir()}
		m := &member{machine: Machine{Name: "a-1"}, record: &record{Name: "a-1", Given: true}}
		m.link = &link{b: b, m: m, tried: time.Now(), cancel: func() {}}
		asks := func() {
			m.link.answered(nil)
			m.link.catchUp(t.Context(), noPods{})
		}
		asks()
		time.Sleep(pingInterval)
		m.link.answered(errors.New("no answer"))
		time.Sleep(2 * timeout)
		if asks(); m.record.Final != nil {
			t.Fatalf("it has lost its pod: %v", m.record.Final.Failure)
		}
		time.Sleep(timeout)
		if asks(); m.record.Final == nil {
			t.Error("it has not lost its pod, which it has lacked for long")
		}
	})
}

// A machine whose agent answers is there, regardless of what lists show, and for how long.
func TestListsThatLackMachinesWhoseAgentsAnswer(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	m := w.only()
	w.lab.set(func() { m.hidden = true })
	w.never("the pod has failed", func() bool { return w.hasPhase(pod, corev1.PodRunning) != nil })
	w.lab.halt(m)
	w.eventually("the pod fails when the agent does not answer, either", func() error { return w.hasPhase(pod, corev1.PodFailed) })
	w.lab.set(func() { m.hidden = false })
	w.eventually("a machine whose pod has failed is deleted when it is listed again", func() error {
		if w.lab.of(m.Name) != nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// The machine of a pod that has finished is kept for its logs, for keepFinished, and the pod's
// status longer than that, also when the node begins again.
func TestKeepFinished(t *testing.T) {
	w := newWorld(t)
	w.cfg.KeepFinished = metav1.Duration{Duration: 3 * time.Second}
	w.start()
	pod := w.pod("a")
	pod.Annotations = map[string]string{"mock.virtual-kubelet.io/run-for": "100ms", "mock.virtual-kubelet.io/exit-code": "0"}
	w.eventually("it is created", func() error { return w.provider.CreatePod(t.Context(), pod) })
	w.eventually("it succeeds", func() error { return w.hasPhase(pod, corev1.PodSucceeded) })
	ended := time.Now()
	m := w.only()
	logs := func() error {
		reader, err := w.provider.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
		if err == nil {
			err = reader.Close()
		}
		return err
	}
	if err := logs(); err != nil && time.Since(ended) < time.Second {
		t.Errorf("its log cannot be read: %v", err)
	}
	w.stop()
	w.start()
	w.eventually("the machine is deleted", func() error {
		if w.lab.of(m.Name) != nil {
			return errors.New("it is there")
		}
		return nil
	})
	if kept := time.Since(ended); kept < 2*time.Second {
		t.Errorf("its machine was kept for %v", kept)
	}
	if err := w.hasPhase(pod, corev1.PodSucceeded); err != nil || w.lab.made() != 1 {
		t.Errorf("%d machines were made: %v", w.lab.made(), err)
	}
	w.never("the pod is forgotten with its machine", func() bool { return w.hasPhase(pod, corev1.PodSucceeded) != nil })
}

// A pod is given to another machine when the one that may have it has ended, not when a list lacks it.
func TestListLacksAMachineThatIsToEnd(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	machine := w.machineOf(pod)
	w.backend.mu.Lock()
	m := w.backend.members[machine.Name]
	w.backend.mu.Unlock()
	w.lab.set(func() { w.lab.lingers, w.lab.machines[machine.Name].hidden = true, true })
	if err := w.backend.end(t.Context(), m); !errdefs.IsUnavailable(err) {
		t.Errorf("while the agent answers: %v", err)
	}
	w.lab.kill(machine.Name)
	w.eventually("the machine has ended", func() error { return w.backend.end(t.Context(), m) })
}

// Another agentPort is that of machines which are made from then on: others go on.
func TestAgentPortIsThatOfTheMachine(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	machine := w.machineOf(pod)
	w.stop()
	w.cfg.AgentPort = machinetest.FreePort(t)
	w.start()
	w.eventually("the pod runs", func() error { return w.hasPhase(pod, corev1.PodRunning) })
	w.answers(machine.Name)
	w.run("b")
}
