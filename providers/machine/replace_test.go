package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// replacing is a world in which machines that are lost are replaced at once.
func replacing(t *testing.T) *world {
	w := newWorld(t)
	w.cfg.ReplaceLost, w.retry = true, 50*time.Millisecond
	return w
}

// runs creates a pod with a restart policy.
func (w *world) runs(name string, policy corev1.RestartPolicy) *corev1.Pod {
	w.t.Helper()
	pod := w.pod(name)
	w.runPod(pod, policy)
	return pod
}

func (w *world) runPod(pod *corev1.Pod, policy corev1.RestartPolicy) {
	w.t.Helper()
	pod.Spec.RestartPolicy = policy
	w.cluster.SetPod(pod)
	w.eventually("pod "+pod.Name+" is created", func() error { return w.provider.CreatePod(w.t.Context(), pod) })
	w.eventually("pod "+pod.Name+" runs", func() error { return w.hasPhase(pod, corev1.PodRunning) })
}

// restarted returns an error unless the pod's container runs, and was started again so often.
func (w *world) restarted(pod *corev1.Pod, restarts int32) error {
	status, err := w.status(pod)
	if err != nil {
		return err
	}
	if len(status.ContainerStatuses) == 0 {
		return errors.New("its containers are not known yet")
	}
	if c := status.ContainerStatuses[0]; c.State.Running == nil || c.RestartCount != restarts || !c.Ready {
		return fmt.Errorf("the phase is %s, the container is %+v", status.Phase, c)
	}
	return nil
}

// A pod whose machine is lost goes on in another one, once and again, with its restarts counted.
func TestLostMachineIsReplaced(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure} {
		t.Run(string(policy), func(t *testing.T) {
			w := replacing(t).start()
			w.cluster.SetConfigMap("settings", map[string]string{"color": "red"})
			pod := w.pod("a")
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "color"}}}}
			w.runPod(pod, policy)
			begun, err := w.status(pod)
			if err != nil {
				t.Fatal(err)
			}
			for n := range int32(2) {
				first := w.only()
				w.lab.kill(first.Name)
				w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, n+1) })
				next := w.only()
				status, err := w.status(pod)
				if err != nil || next.Name == first.Name || status.PodIP != next.Address || status.ContainerStatuses[0].LastTerminationState.Terminated == nil {
					t.Errorf("machine %s takes the place of %s: %+v, %v", next.Name, first.Name, status, err)
				}
				if status.StartTime.Unix() != begun.StartTime.Unix() { // from which activeDeadlineSeconds count
					t.Errorf("the pod has started at %v, and not at %v", status.StartTime, begun.StartTime)
				}
				held, err := next.pods.GetPod(t.Context(), pod.Namespace, pod.Name)
				if err != nil || len(held.Spec.Containers[0].Env) == 0 || held.Spec.Containers[0].Env[len(held.Spec.Containers[0].Env)-1].Value != "red" {
					t.Errorf("the pod in the other machine is %+v: %v", held, err)
				}
				if _, err := os.Stat(w.backend.records.path(first.Name)); err == nil {
					t.Error("the record of the machine that was lost is there")
				}
			}
			if w.lab.made() != 3 {
				t.Errorf("%d machines were made", w.lab.made())
			}
			w.stop()
			w.start() // which has the same of it
			w.eventually("the pod is adopted", func() error { return w.restarted(pod, 2) })
		})
	}
}

// A pod that is not to be started again fails with its machine, also by the policy of a container.
func TestPodThatIsNotReplaced(t *testing.T) {
	for policy, own := range map[corev1.RestartPolicy]*corev1.ContainerRestartPolicy{
		corev1.RestartPolicyNever: nil, corev1.RestartPolicyAlways: ptr.To(corev1.ContainerRestartPolicyNever),
	} {
		t.Run(string(policy), func(t *testing.T) {
			w := replacing(t).start()
			pod := w.pod("a")
			pod.Spec.Containers[0].RestartPolicy = own
			w.runPod(pod, policy)
			w.lab.kill(w.only().Name)
			w.eventually("the pod fails", func() error { return w.hasPhase(pod, corev1.PodFailed) })
			w.never("another machine was made", func() bool { return w.lab.made() != 1 })
		})
	}
}

// What has ended for good is not started again; init containers are, in each machine.
func TestWhatStartsAgain(t *testing.T) {
	const (
		always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	)
	runs := podgroup.Run{State: podgroup.Executing}
	ended := func(code int32) podgroup.Run { return podgroup.Run{State: podgroup.Terminated, ExitCode: code} }
	once := ptr.To(corev1.ContainerRestartPolicyNever)
	for what, c := range map[string]struct {
		policy           corev1.RestartPolicy
		initOwn, own     *corev1.ContainerRestartPolicy
		init, main, more podgroup.Run
		want             bool
	}{
		"Never":                                {policy: never, main: runs},
		"Always":                               {policy: always, init: ended(0), main: ended(0), want: true},
		"OnFailure, initialized":               {policy: onFailure, init: ended(0), main: runs, more: ended(1), want: true},
		"OnFailure, a container has completed": {policy: onFailure, init: ended(0), main: runs, more: ended(0)},
		"a container runs once":                {policy: always, own: once, init: ended(0), main: runs},
		"an init container runs once":          {policy: always, initOwn: once, init: ended(0), main: runs},
		"a container has completed, by its own policy": {
			policy: always, own: ptr.To(corev1.ContainerRestartPolicyOnFailure), init: ended(0), main: ended(0), more: runs,
		},
	} {
		pod := &corev1.Pod{}
		pod.Spec.RestartPolicy = c.policy
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", RestartPolicy: c.initOwn}}
		pod.Spec.Containers = []corev1.Container{{Name: "main", RestartPolicy: c.own}, {Name: "more"}}
		if got := startsAgain(pod, []podgroup.Container{{Name: "init", Now: c.init}, {Name: "main", Now: c.main}, {Name: "more", Now: c.more}}); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// An init container that has completed runs again in another machine. Where the API accepts no other
// state of it than that it has ended, it is shown so.
func TestInitContainerInAnotherMachine(t *testing.T) {
	w := replacing(t)
	var done, back atomic.Bool
	w.notify = func(pod *corev1.Pod) {
		for i := range pod.Status.InitContainerStatuses {
			ended := pod.Status.InitContainerStatuses[i].State.Terminated != nil
			back.Store(back.Load() || done.Load() && !ended)
			done.Store(done.Load() || ended)
		}
	}
	w.start()
	pod := w.pod("a")
	pod.Annotations = map[string]string{"mock.virtual-kubelet.io/start-delay": "300ms"}
	pod.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "busybox"}}
	w.runPod(pod, corev1.RestartPolicyOnFailure)
	for n := range int32(2) {
		w.lab.kill(w.only().Name)
		w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, n+1) })
	}
	if !done.Load() || back.Load() {
		t.Errorf("it has completed: %v; it was shown to be in another state then: %v", done.Load(), back.Load())
	}
}

// No other machine is made while the one that cannot be reached may run.
func TestReplacementWaitsForTheEnd(t *testing.T) {
	w := replacing(t)
	w.cfg.UnreachableTimeout = metav1.Duration{Duration: 300 * time.Millisecond}
	w.lab.lingers = true
	w.start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	m := w.only()
	w.lab.halt(m)
	w.isDeleted(m)
	w.never("another machine was made", func() bool { return w.lab.made() != 1 })
	w.lab.kill(m.Name)
	w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, 1) })
}

// lost is a world whose pod has lost its machine, and for which none can be made at the moment.
func lost(t *testing.T) (w *world, pod *corev1.Pod, machine string) {
	t.Helper()
	w = replacing(t).start()
	pod = w.runs("a", corev1.RestartPolicyAlways)
	machine = w.only().Name
	w.lab.set(func() { w.lab.failing = true })
	w.lab.kill(machine)
	w.eventually("the pod waits for another machine", func() error {
		status, err := w.status(pod)
		if err == nil && (len(status.ContainerStatuses) == 0 || status.ContainerStatuses[0].State.Waiting == nil || status.ContainerStatuses[0].State.Waiting.Reason != reasonLost) {
			err = fmt.Errorf("its containers are %+v", status.ContainerStatuses)
		}
		return err
	})
	return w, pod, machine
}

// A node that begins again goes on with the replacement. Meanwhile the pod is neither ready nor
// over.
func TestRestartInAReplacement(t *testing.T) {
	w, pod, machine := lost(t)
	record, err := os.ReadFile(w.backend.records.path(machine))
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start()
	if status, err := w.status(pod); err != nil || status.Phase != corev1.PodRunning || status.ContainerStatuses[0].Ready || status.ContainerStatuses[0].LastTerminationState.Terminated == nil {
		t.Errorf("the status is %+v: %v", status, err)
	}
	w.lab.set(func() { w.lab.failing = false })
	w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, 1) })
	next := w.only()
	w.stop() // as if it had ended before the record was removed
	if err := os.WriteFile(filepath.Join(w.cfg.StateDir, "machines", machine+".json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.eventually("the pod is adopted", func() error { return w.restarted(pod, 1) })
	w.eventually("the record is removed", func() error {
		if _, err := os.Stat(w.backend.records.path(machine)); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.never("the pod has left its machine", func() bool { return w.restarted(pod, 1) != nil || w.only().Name != next.Name })
	if w.lab.made() != 2 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// The pod is deleted while it waits for another machine, or while that starts.
func TestDeletionInAReplacement(t *testing.T) {
	for _, starts := range []bool{false, true} {
		w, pod, _ := lost(t)
		if starts {
			w.lab.set(func() { w.lab.silent, w.lab.failing = true, false })
			w.eventually("another machine starts", func() error {
				if len(w.lab.all()) == 0 {
					return errors.New("there is none")
				}
				return nil
			})
		}
		pod = pod.DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To(int64(30))
		w.cluster.SetPod(pod)
		if err := w.provider.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		w.eventually("the pod is gone", func() error {
			if _, err := w.status(pod); !errdefs.IsNotFound(err) {
				return fmt.Errorf("it is there: %v", err)
			}
			return nil
		})
		w.cluster.RemovePod(pod)
		w.lab.set(func() { w.lab.failing = false })
		w.eventually("no machine is left", func() error {
			if n := len(w.lab.all()); n > 0 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		w.never("a machine was made", func() bool { return len(w.lab.all()) > 0 })
		w.stop()
	}
}

// The pod is deleted while it is being sent to another machine: it has the grace period of the deletion
// there, and is not over before it ends. That the record of the lost machine cannot be removed keeps
// nothing.
func TestDeletionWhileAPodIsSentAgain(t *testing.T) {
	for _, kept := range []bool{false, true} { // the record of the lost machine
		w := replacing(t)
		var over atomic.Bool
		w.notify = func(pod *corev1.Pod) {
			if isOver(pod) {
				over.Store(true)
			}
		}
		w.start()
		pod := w.runs("a", corev1.RestartPolicyAlways)
		first := w.only().Name
		w.lab.set(func() { w.lab.sending, w.lab.stubborn = make(chan struct{}), true })
		w.lab.kill(first)
		var next *labMachine
		w.eventually("the pod is being sent", func() error {
			w.lab.mu.Lock()
			defer w.lab.mu.Unlock()
			for _, m := range w.lab.machines {
				if next = m; m.sent {
					return nil
				}
			}
			return errors.New("it is not")
		})
		path := w.backend.records.path(first)
		if kept {
			if err := errors.Join(os.Rename(path, path+".away"), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
				t.Fatal(err)
			}
		}
		pod = pod.DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To(int64(700)) // which is not over before this test, on a busy machine, too
		w.cluster.SetPod(pod)
		if err := w.provider.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		close(w.lab.sending)
		w.eventually("the agent ends the pod", func() error {
			w.lab.mu.Lock()
			defer w.lab.mu.Unlock()
			if len(next.graces) == 0 {
				return errors.New("it was not asked to")
			}
			if next.graces[0] != 700 {
				t.Errorf("the pod is to end within %d seconds", next.graces[0])
			}
			return nil
		})
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		w.eventually("the record of the lost machine is removed", func() error {
			w.backend.mu.Lock()
			defer w.backend.mu.Unlock()
			if w.backend.members[first] != nil {
				return errors.New("it is not")
			}
			return nil
		})
		w.never("the pod is over, and runs", func() bool { return over.Load() && w.lab.has(next, pod) })
		pod = pod.DeepCopy()
		pod.DeletionGracePeriodSeconds = ptr.To(int64(0))
		if err := w.provider.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		w.eventually("the pod is gone", func() error {
			if _, err := w.status(pod); !errdefs.IsNotFound(err) {
				return fmt.Errorf("it is there: %v", err)
			}
			if n := len(w.lab.all()); n > 0 || !over.Load() {
				return fmt.Errorf("%d machines are left; its end is known: %v", n, over.Load())
			}
			return nil
		})
		w.stop()
	}
}

// The driver hangs with the machine that is to take the place of a lost one: the pod can be deleted, other
// pods go on, and what the driver makes in the end is ended.
func TestDriverThatHangsInAReplacement(t *testing.T) {
	w := replacing(t).start()
	pod, other := w.runs("a", corev1.RestartPolicyAlways), w.runs("b", corev1.RestartPolicyAlways)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	w.lab.set(func() { w.lab.hold = hold })
	w.lab.kill(w.machineOf(pod).Name)
	w.eventually("the driver hangs", func() error {
		w.lab.mu.Lock()
		defer w.lab.mu.Unlock()
		if w.lab.making != 1 {
			return errors.New("it does not")
		}
		return nil
	})
	for _, one := range []*corev1.Pod{pod, other} {
		deleted := one.DeepCopy()
		deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To(int64(1))
		w.cluster.SetPod(deleted)
		if err := w.provider.DeletePod(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
		w.eventually("pod "+one.Name+" is gone", func() error {
			if _, err := w.status(one); !errdefs.IsNotFound(err) {
				return fmt.Errorf("it is there: %v", err)
			}
			return nil
		})
		w.cluster.RemovePod(deleted)
	}
	release()
	w.eventually("what the driver has made is ended", func() error {
		if made, left := w.lab.made(), len(w.lab.all()); made != 3 || left != 0 {
			return fmt.Errorf("%d machines were made, %d are left", made, left)
		}
		return nil
	})
}

// Which pods there are is not known right after the start: none fails for that.
func TestReplacementBeforePodsAreKnown(t *testing.T) {
	w := replacing(t).start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	w.stop()
	w.lab.kill(w.only().Name)
	w.cluster.RemovePod(pod)
	synced := false
	w.adjust = func(init *nodeutil.ProviderConfig) {
		init.PodsSynced = func() bool { w.lab.mu.Lock(); defer w.lab.mu.Unlock(); return synced }
	}
	w.start()
	w.never("another machine was made", func() bool { return w.lab.made() != 1 })
	w.cluster.SetPod(pod)
	w.lab.set(func() { synced = true })
	w.eventually("the pod runs in another machine", func() error {
		if err := w.hasPhase(pod, corev1.PodRunning); err != nil {
			return err
		}
		if w.lab.made() != 2 {
			return errors.New("it does not")
		}
		return nil
	})
}

// The pod of a machine that will be taken is ended before, and is a target of a disruption.
func TestMachineThatWillBeTaken(t *testing.T) {
	w := newWorld(t).start()
	pod, other := w.run("a"), w.run("b")
	for _, m := range w.lab.all() {
		if strings.HasPrefix(m.Name, "default-a-") {
			w.lab.set(func() { m.TakenAt = time.Now().Add(time.Minute) })
		}
	}
	w.eventually("the pod has ended", func() error { return w.hasPhase(pod, corev1.PodFailed) })
	status, err := w.status(pod)
	if err != nil || status.Reason != reasonTaken || !slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
	}) {
		t.Errorf("the status is %+v: %v", status, err)
	}
	if c := status.ContainerStatuses[0]; c.State.Terminated == nil || c.State.Terminated.Reason == "ContainerStatusUnknown" {
		t.Errorf("its container was not ended before: %+v", c)
	}
	found := false
	for len(w.cluster.Events.Events) > 0 {
		found = found || strings.Contains(<-w.cluster.Events.Events, reasonTaken)
	}
	if err := w.hasPhase(other, corev1.PodRunning); err != nil || !found {
		t.Errorf("there is an event: %v; the other pod: %v", found, err)
	}
	w.stop()
	w.start() // which does not forget it
	if status, err := w.status(pod); err != nil || status.Reason != reasonTaken {
		t.Errorf("after a restart: %+v: %v", status, err)
	}
}

// With replaceLost the pod goes on in another machine, once the one that will be taken is gone.
func TestMachineThatWillBeTakenIsReplaced(t *testing.T) {
	w := replacing(t).start()
	pod := w.runs("a", corev1.RestartPolicyAlways)
	m := w.only()
	w.lab.set(func() { m.TakenAt = time.Now().Add(time.Minute) })
	w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, 1) })
	if next := w.only(); next.Name == m.Name || w.lab.made() != 2 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// A machine that will be taken is given no pod.
func TestMachineThatWillBeTakenGetsNoPod(t *testing.T) {
	w := newWorld(t)
	w.retry = 50 * time.Millisecond
	w.lab.silent = true
	w.start()
	pod := w.pod("a")
	provider := w.provider
	created := make(chan error, 1)
	go func() { created <- provider.CreatePod(t.Context(), pod) }()
	w.eventually("a machine starts", func() error {
		if len(w.lab.all()) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	first := w.only()
	w.lab.set(func() { first.TakenAt, w.lab.silent = time.Now().Add(time.Minute), false })
	if err := <-created; err == nil || !strings.Contains(err.Error(), "will be taken") {
		t.Errorf("the pod is created: %v", err)
	}
	w.run("a")
	if w.only().Name == first.Name {
		t.Error("the pod is in the machine that will be taken")
	}
}
