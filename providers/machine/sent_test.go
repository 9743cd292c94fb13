package machine

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// longGrace is not over before a test, on a busy machine, too.
const longGrace = 700

// away moves the directory of records away, so that none can be written, and returns what moves it back.
func (w *world) away() (back func()) {
	w.t.Helper()
	dir := w.backend.records.dir
	if err := os.Rename(dir, dir+".away"); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(dir+".away", dir); err != nil {
			w.t.Error(err)
		}
	}
}

// Until the agent of a machine was sent a pod, no machine has it: it leaves the API as soon as it is deleted.
func TestDeletionOfAPodThatWasNotSent(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the driver fails":            func(w *world) { w.lab.failing = true },
		"the machine has no address":  func(w *world) { w.lab.nowhere = true },
		"its agent does not call":     func(w *world) { w.lab.silent = true },
		"the pod is refused at first": func(w *world) { w.lab.refusals = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.BootTimeout = metav1.Duration{Duration: 200 * time.Millisecond}
			if change(w); w.lab.refusals > 0 {
				w.cfg.BootTimeout = metav1.Duration{}
			}
			w.start()
			if _, err := handlerOf(w.provider).(nodeutil.Provider).GetPods(t.Context()); err != nil { // as an agent does when it starts
				t.Fatal(err)
			}
			pod := w.pod("a")
			if err := w.provider.CreatePod(t.Context(), pod); err == nil || errdefs.IsPermanent(err) {
				t.Fatal(err)
			}
			grouptest.CheckLeaves(t, w.cluster, handlerOf(w.provider).(nodeutil.Provider), pod)
		})
	}
}

// sentInVain creates a pod whose machine has it, while the answer to that is lost, or cannot be recorded.
func (w *world) sentInVain(pod *corev1.Pod, recorded bool) *labMachine {
	w.t.Helper()
	hold := make(chan struct{})
	w.lab.set(func() { w.lab.mute, w.lab.sending = recorded, hold })
	created := make(chan error, 1)
	go func() { created <- w.provider.CreatePod(w.t.Context(), pod) }()
	var m *labMachine
	w.eventually("the pod is being sent", func() (err error) {
		m, err = w.beingSent(pod)
		return err
	})
	if !recorded {
		defer w.away()()
	}
	close(hold)
	if err := <-created; err == nil {
		w.t.Fatal("the pod is created")
	}
	if !w.lab.has(m, pod) {
		w.t.Fatal("the machine does not have the pod")
	}
	return m
}

// beingSent returns the machine whose agent was asked to take a pod, of those that there are.
func (w *world) beingSent(pod *corev1.Pod) (*labMachine, error) {
	w.lab.mu.Lock()
	defer w.lab.mu.Unlock()
	for _, m := range w.lab.machines {
		if m.sent && uidOf(m.Machine) == pod.UID {
			return m, nil
		}
	}
	return nil, errors.New("it is not")
}

// deletes deletes a pod as the cluster does, and the pod controller.
func (w *world) deletes(pod *corev1.Pod, grace int64) {
	w.t.Helper()
	pod = pod.DeepCopy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To(grace)
	w.cluster.SetPod(pod)
	if err := w.provider.DeletePod(w.t.Context(), pod); err != nil {
		w.t.Fatalf("it is not deleted: %v", err)
	}
}

// endsWithin waits until the agent of a machine was asked to end its pod, and returns the grace period.
func (w *world) endsWithin(m *labMachine) (grace int64) {
	w.t.Helper()
	w.eventually("the agent ends the pod", func() error {
		w.lab.mu.Lock()
		defer w.lab.mu.Unlock()
		if len(m.graces) == 0 {
			return errors.New("it was not asked to")
		}
		grace = m.graces[0]
		return nil
	})
	return grace
}

// A pod that its machine may have, since the answer was lost, or could not be recorded, ends within its
// grace period when it is deleted, and is not over before: another one of its name would run beside it.
func TestDeletionOfAPodWhoseAnswerIsLost(t *testing.T) {
	for _, test := range []struct{ recorded, restart bool }{{true, false}, {true, true}, {false, false}} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			w := newWorld(t).start()
			w.lab.set(func() { w.lab.stubborn = true })
			pod := w.pod("a")
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			m := w.sentInVain(pod, test.recorded)
			if test.restart {
				w.stop()
				w.start()
				if _, err := w.status(pod); !errdefs.IsNotFound(err) { // it is to be created again
					t.Errorf("it is shown: %v", err)
				}
			}
			w.deletes(pod, longGrace)
			if grace := w.endsWithin(m); grace < longGrace-100 {
				t.Errorf("the pod is to end within %d seconds", grace)
			}
			if _, err := w.status(pod); err != nil {
				t.Errorf("the pod is over, and runs: %v", err)
			}
			w.lab.set(func() { w.lab.stubborn = false })
			w.deletes(pod, 0)
			w.isGone(m.Name)
			w.eventually("the pod is gone", func() error {
				if _, err := w.status(pod); !errdefs.IsNotFound(err) {
					return fmt.Errorf("it is there: %v", err)
				}
				return nil
			})
		})
	}
}

// The same of an earlier process, where a list has been made before all pods are known.
func TestDeletionOfAPodWhoseAnswerIsLostBeforePodsAreKnown(t *testing.T) {
	w := newWorld(t).start()
	w.lab.set(func() { w.lab.stubborn = true })
	pod := w.pod("a")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	m := w.sentInVain(pod, true)
	w.stop()
	var synced atomic.Bool
	w.adjust = func(init *nodeutil.ProviderConfig) { init.PodsSynced = synced.Load }
	w.start()
	if _, err := w.status(pod); !errdefs.IsNotFound(err) {
		t.Errorf("it is shown: %v", err)
	}
	synced.Store(true)
	w.deletes(pod, longGrace)
	if grace := w.endsWithin(m); grace < longGrace-100 {
		t.Errorf("the pod is to end within %d seconds", grace)
	}
}

// The same while a list has been made for another pod since.
func TestDeletionOfOneOfTwoPodsWhoseAnswersAreLost(t *testing.T) {
	w := newWorld(t).start()
	w.lab.set(func() { w.lab.stubborn = true })
	pods := []*corev1.Pod{w.pod("a"), w.pod("b")}
	var first *labMachine
	for _, pod := range pods {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		if m := w.sentInVain(pod, true); first == nil {
			first = m
		}
	}
	if _, err := w.status(pods[1]); !errdefs.IsNotFound(err) {
		t.Errorf("it is shown: %v", err)
	}
	w.deletes(pods[0], longGrace)
	if grace := w.endsWithin(first); grace < longGrace-100 {
		t.Errorf("the pod is to end within %d seconds", grace)
	}
	if _, err := w.status(pods[0]); err != nil {
		t.Errorf("the pod is over, and runs: %v", err)
	}
}

// A machine that may have had a pod, and has ended, has no pod whose grace period is waited for.
func TestDeletionOfAPodWhoseMachineEndedBeforeItsAnswer(t *testing.T) {
	w := newWorld(t).start()
	pod := w.pod("a")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	m := w.sentInVain(pod, true)
	w.lab.set(func() { m.State = Ended })
	m.stop()
	<-m.ended
	w.deletes(pod, longGrace)
	w.isGone(m.Name)
}

// A pod of which it is not known whether its machine has it is not shown before it is deleted: it is
// created again.
func TestPodWhoseAnswerIsLostIsSentAgain(t *testing.T) {
	w := newWorld(t).start()
	pod := w.pod("a")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	w.sentInVain(pod, true)
	if _, err := w.status(pod); !errdefs.IsNotFound(err) {
		t.Errorf("it is shown: %v", err)
	}
	w.runPod(pod, corev1.RestartPolicyAlways)
	if w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// The same in a machine that takes the place of one that was lost.
func TestDeletionInAReplacementWhoseAnswerIsLost(t *testing.T) {
	w := replacing(t).start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	hold := make(chan struct{})
	w.lab.set(func() { w.lab.sending, w.lab.stubborn = hold, true })
	w.lab.kill(w.only().Name)
	var next *labMachine
	w.eventually("the pod is being sent", func() (err error) {
		next, err = w.beingSent(pod)
		return err
	})
	back := w.away()
	close(hold)
	w.eventually("the other machine has the pod", func() error {
		if !w.lab.has(next, pod) {
			return errors.New("it has not")
		}
		return nil
	})
	w.deletes(pod, longGrace)
	if grace := w.endsWithin(next); grace < longGrace-100 {
		t.Errorf("the pod is to end within %d seconds", grace)
	}
	w.eventually("it is shown in the other machine", func() error {
		status, err := w.status(pod)
		if err == nil && status.PodIP != next.Address {
			err = fmt.Errorf("its address is %q", status.PodIP)
		}
		return err
	})
	back()
	w.lab.set(func() { w.lab.stubborn = false })
	w.deletes(pod, 0)
	w.isGone(next.Name)
}

// A pod that its machine may have, and that nobody has deleted there, ends within a grace period.
func TestMachineThatMayHaveAPodThatIsGone(t *testing.T) {
	w := newWorld(t).start()
	pod := w.pod("a")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	m := w.sentInVain(pod, true)
	w.cluster.RemovePod(pod)
	if grace := w.endsWithin(m); time.Duration(grace)*time.Second < 10*time.Second {
		t.Errorf("the pod is to end within %d seconds", grace)
	}
	w.isGone(m.Name)
}
