package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

func TestPodHasAMachineOfItsOwn(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	m := w.only()
	if text := <-w.cluster.Events.Events; !strings.Contains(text, "MachineStarting") || !strings.Contains(text, m.Name) {
		t.Errorf("the first event is %q", text)
	}
	status, err := w.status(pod)
	if err != nil || status.PodIP != m.Address {
		t.Errorf("the pod's address is %q, that of its machine %s: %v", status.PodIP, m.Address, err)
	}
	logs, err := w.provider.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(logs); err != nil {
		t.Error(err)
	}
	_ = logs.Close()
	w.run("b")
	if n := len(w.lab.all()); n != 2 {
		t.Errorf("two pods have %d machines", n)
	}
	pod = pod.DeepCopy() // the cluster has the other
	pod.DeletionGracePeriodSeconds = ptr.To(int64(1))
	if err := w.provider.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.eventually("the machine is gone with its pod", func() error {
		if _, ok := w.lab.all()[m.Name]; ok {
			return errors.New("it is there")
		}
		if _, err := w.status(pod); !errdefs.IsNotFound(err) {
			return errors.New("its pod is there")
		}
		return nil
	})
	if n := len(w.lab.all()); n != 1 {
		t.Errorf("the other pod has %d machines", n)
	}
}

// A pod that takes longer than its grace period is killed, by its agent: how its containers ended is in its
// last status.
func TestKilledPodShowsHowItEnded(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a").DeepCopy()
	for _, grace := range []int64{3600, 0} {
		w.lab.set(func() { w.lab.stubborn = grace > 0 })
		pod.DeletionGracePeriodSeconds = &grace
		if err := w.provider.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	w.showsHowItEnded(pod, corev1.PodFailed)
}

// The same if it has ended in the moment in which it was to be killed, and what its agent reports of that is
// still on its way.
func TestPodThatEndsBeforeItIsKilledShowsHow(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a").DeepCopy()
	m, report := w.only(), make(chan struct{})
	w.lab.set(func() { w.lab.report = report })
	pod.DeletionGracePeriodSeconds = ptr.To(int64(3600))
	if err := w.provider.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.eventually("the agent has no pod", func() error {
		pods, err := m.pods.GetPods(t.Context())
		if err == nil && len(pods) > 0 {
			err = errors.New("it has")
		}
		return err
	})
	pod.DeletionGracePeriodSeconds = ptr.To(int64(0))
	if err := w.provider.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	close(report)
	w.showsHowItEnded(pod, corev1.PodSucceeded)
}

// showsHowItEnded waits until a pod is gone, and checks its last status.
func (w *world) showsHowItEnded(pod *corev1.Pod, phase corev1.PodPhase) {
	w.t.Helper()
	var last *corev1.PodStatus
	w.eventually("the pod is gone", func() error {
		status, err := w.status(pod)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err == nil {
			last = status
		}
		return errors.New("it is there")
	})
	if last == nil || last.Phase != phase || last.ContainerStatuses[0].State.Terminated == nil || last.ContainerStatuses[0].State.Terminated.Reason == "ContainerStatusUnknown" {
		w.t.Errorf("its last status is %+v", last)
	}
}

// A node that begins again adopts the machines, and runs nothing twice.
func TestRestartAdopts(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	before := w.only()
	w.stop()
	w.start()
	w.eventually("the pod is adopted", func() error { return w.hasPhase(pod, corev1.PodRunning) })
	if err := w.provider.CreatePod(t.Context(), pod); err == nil && w.lab.made() != 1 {
		t.Error("the pod was given to another machine")
	}
	if m := w.only(); m.Name != before.Name || w.lab.made() != 1 {
		t.Errorf("%d machines were made, and %s is there in place of %s", w.lab.made(), m.Name, before.Name)
	}
}

// A node that ends while a machine starts gives the pod to that machine when it begins again.
func TestRestartWhileAMachineStarts(t *testing.T) {
	w := newWorld(t)
	w.lab.silent = true
	w.start()
	pod := w.pod("a")
	created := make(chan error, 1)
	provider := w.provider
	go func() { created <- provider.CreatePod(t.Context(), pod) }()
	w.eventually("a machine is made", func() error {
		if len(w.lab.all()) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	first := w.only()
	w.stop()
	if err := <-created; err == nil {
		t.Fatal("the pod was created in a machine without an agent")
	}
	w.start()
	w.lab.set(func() { w.lab.boot(first) })
	w.eventually("the pod is created", func() error { return w.provider.CreatePod(t.Context(), pod) })
	w.eventually("the pod runs", func() error { return w.hasPhase(pod, corev1.PodRunning) })
	if w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// A node that was away for longer than a machine may take to start does not know of those that have started
// meanwhile: they get that time once more.
func TestRestartLongAfterAMachineStarts(t *testing.T) {
	w, m := begun(t)
	w.stop()
	w.lab.set(func() { m.Created = m.Created.Add(-time.Hour) })
	w.start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.provider.CreatePod(ctx, w.pod("a")); err == nil || ctx.Err() == nil {
		t.Fatalf("the machine is not waited for: %v", err)
	}
	w.lab.set(func() { w.lab.boot(m) })
	w.run("a")
	if w.only() != m || w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

func TestMachineThatDiesFailsItsPod(t *testing.T) {
	w := newWorld(t).start()
	pod := w.run("a")
	other := w.run("b")
	for name := range w.lab.all() {
		if strings.HasPrefix(name, "default-a-") {
			w.lab.kill(name)
		}
	}
	w.eventually("the pod fails", func() error { return w.hasPhase(pod, corev1.PodFailed) })
	if status, err := w.status(pod); err != nil || status.Reason != reasonLost {
		t.Errorf("its reason is %q: %v", status.Reason, err)
	}
	if err := w.hasPhase(other, corev1.PodRunning); err != nil {
		t.Errorf("the other pod: %v", err)
	}
	if w.lab.made() != 2 {
		t.Errorf("%d machines were made for two pods", w.lab.made())
	}
	w.stop()
	w.start() // which does not forget it
	if err := w.hasPhase(pod, corev1.PodFailed); err != nil {
		t.Error(err)
	}
	pod = pod.DeepCopy() // the cluster has the other
	pod.DeletionGracePeriodSeconds = ptr.To(int64(0))
	if err := w.provider.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.eventually("the pod is gone", func() error {
		if _, err := w.status(pod); !errdefs.IsNotFound(err) {
			return errors.New("it is there")
		}
		return nil
	})
}

// Lists that fail, or lack a machine for a moment, fail no pod.
func TestListsThatFailLoseNoPod(t *testing.T) {
	w := newWorld(t)
	w.cfg.MissingTimeout = metav1.Duration{Duration: time.Hour}
	w.start()
	pod := w.run("a")
	w.lab.set(func() { w.lab.listErr = errors.New("no answer") })
	w.never("the pod has failed", func() bool { return w.hasPhase(pod, corev1.PodFailed) == nil })
	m := w.only()
	w.lab.set(func() { w.lab.listErr, m.hidden = nil, true })
	w.never("the pod has failed", func() bool { return w.hasPhase(pod, corev1.PodFailed) == nil })
	w.lab.set(func() { m.hidden = false })
	if err := w.hasPhase(pod, corev1.PodRunning); err != nil || w.lab.made() != 1 {
		t.Errorf("%d machines: %v", w.lab.made(), err)
	}
}

// An answer that got lost, and lists that lag, make no second machine.
func TestCreationWhoseAnswerIsLost(t *testing.T) {
	w := newWorld(t)
	w.lab.lost, w.lab.hidden = 2, true
	w.start()
	w.run("a")
	if w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// A machine that ends with the answer to the pod's creation may have run the pod: one that runs once
// at the most is in no other machine then, also for a node that has begun again.
func TestMachineThatDiesBeforeItsAnswer(t *testing.T) {
	for policy, again := range map[corev1.RestartPolicy]bool{corev1.RestartPolicyNever: false, corev1.RestartPolicyAlways: true} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			w.lab.mute = true
			w.start()
			pod := w.pod("a")
			pod.Spec.RestartPolicy = policy
			if err := w.provider.CreatePod(t.Context(), pod); err == nil {
				t.Fatal("the answer has arrived")
			}
			m := w.only()
			if !w.lab.has(m, pod) {
				t.Fatal("the agent does not have the pod")
			}
			m.stop()
			w.lab.set(func() { w.lab.mute, m.State = false, Ended })
			w.stop()
			w.start()
			var err error
			w.eventually("it is decided what becomes of the pod", func() error {
				if err = w.provider.CreatePod(t.Context(), pod); errdefs.IsPermanent(err) {
					return nil
				}
				return err
			})
			if again != (err == nil) || again != (w.lab.made() == 2) {
				t.Errorf("%d machines were made: %v", w.lab.made(), err)
			}
		})
	}
}

// An agent that begins again without a pod, the answer to whose creation got lost, may have run it: one that
// runs once at the most is not sent again.
func TestAgentThatForgetsBeforeItsAnswer(t *testing.T) {
	for policy, again := range map[corev1.RestartPolicy]bool{corev1.RestartPolicyNever: false, corev1.RestartPolicyAlways: true} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			w.lab.mute = true
			w.start()
			pod := w.pod("a")
			pod.Spec.RestartPolicy = policy
			if err := w.provider.CreatePod(t.Context(), pod); err == nil {
				t.Fatal("the answer has arrived")
			}
			m := w.only()
			w.lab.halt(m)
			w.lab.set(func() { w.lab.mute, m.pods, m.sent = false, nil, false; w.lab.boot(m) })
			var err error
			w.eventually("it is decided what becomes of the pod", func() error {
				if err = w.provider.CreatePod(t.Context(), pod); errdefs.IsPermanent(err) {
					return nil
				}
				return err
			})
			w.lab.set(func() {
				if again != (err == nil) || again != m.sent || w.lab.created != 1 {
					t.Errorf("it was sent again: %t, to %d machines: %v", m.sent, w.lab.created, err)
				}
			})
			if !again && !strings.HasPrefix(fmt.Sprint(err), reasonLost+": ") {
				t.Errorf("the reason is missing: %v", err)
			}
		})
	}
}

// A pod that the agent has refused has not run, and is sent again, also when the node has begun again.
func TestPodThatItsAgentRefusesAtFirst(t *testing.T) {
	w := newWorld(t)
	w.lab.refusals = 1
	w.start()
	pod := w.pod("a")
	if err := w.provider.CreatePod(t.Context(), pod); err == nil || errdefs.IsPermanent(err) {
		t.Fatalf("it is refused: %v", err)
	}
	w.stop()
	w.start()
	w.run("a")
	if w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// What a process that was killed has left of a record is removed.
func TestUnfinishedRecords(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.cfg.StateDir, "machines")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".new-1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("there is %v: %v", left, err)
	}
}

// A machine whose agent never asks for its certificate is deleted, and another one made, later.
func TestAgentThatNeverCalls(t *testing.T) {
	w := newWorld(t)
	w.cfg.BootTimeout = metav1.Duration{Duration: 500 * time.Millisecond}
	w.lab.silent = true
	w.start()
	pod := w.pod("a")
	err := w.provider.CreatePod(t.Context(), pod)
	for err != nil && !strings.Contains(err.Error(), "another one made") {
		err = w.provider.CreatePod(t.Context(), pod)
	}
	if delay, ok := errdefs.RetryAfter(err); !ok || delay < firstBootRetry || !strings.Contains(err.Error(), "kernel panic") {
		t.Errorf("it is tried again after %v, without what the console says: %v", delay, err)
	}
	if n := len(w.lab.all()); n != 0 {
		t.Errorf("%d machines are left", n)
	}
	w.lab.set(func() { w.lab.silent = false })
	w.backend.cfg.BootTimeout = metav1.Duration{Duration: time.Minute}
	w.run("a")
	if m := w.only(); !strings.HasSuffix(m.Name, "-2") {
		t.Errorf("the second machine is %s", m.Name)
	}
}

// Machines that have no pod are ended once the pods are known and the API server confirms it;
// those of others never.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	synced, failing := false, true
	w.adjust = func(init *nodeutil.ProviderConfig) {
		init.PodsSynced = func() bool { w.lab.mu.Lock(); defer w.lab.mu.Unlock(); return synced }
		fakeapi.React(&init.Client.(*fake.Clientset).Fake, "list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.lab.mu.Lock()
			defer w.lab.mu.Unlock()
			if failing {
				return true, nil, errors.New("no answer")
			}
			return true, &corev1.PodList{}, nil
		})
	}
	add := func(name, cluster, clusterUID, node, uid string) {
		w.lab.machines[name] = &labMachine{ended: make(chan struct{}), stop: func() {}, Machine: Machine{Name: name, State: Running, Created: time.Now(), Tags: map[string]string{
			"ClusterName": cluster, "ClusterUID": clusterUID, "NodeName": node, "Namespace": "default", "PodName": name, "UID": uid, tagMachine: name,
		}}}
		close(w.lab.machines[name].ended)
	}
	add("orphan", "home", "cluster-uid", "vk", "gone")
	add("known", "home", "cluster-uid", "vk", "uid-known")
	w.pod("known")
	others := []string{"other-cluster", "other-uid", "other-node", "longer-node", "unmarked"}
	add(others[0], "away", "cluster-uid", "vk", "gone")
	add(others[1], "home", "another-uid", "vk", "gone")
	add(others[2], "home", "cluster-uid", "vk2", "gone")
	add(others[3], "home", "cluster-uid", "vk", "gone")
	w.lab.machines[others[3]].Tags["NodeName.2"] = "-and-more"
	add(others[4], "home", "cluster-uid", "vk", "gone")
	delete(w.lab.machines[others[4]].Tags, tagMachine)
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.never("a machine was ended before the pods were known", func() bool { return len(w.lab.all()) != 7 })
	w.lab.set(func() { synced = true })
	w.never("a machine was ended although the API server did not answer", func() bool { return len(w.lab.all()) != 7 })
	w.lab.set(func() { failing = false })
	w.eventually("the orphan is ended", func() error {
		if w.lab.all()["orphan"] != nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.never("a machine of another was ended", func() bool { return len(w.lab.all()) != 6 })
	for _, name := range append(slices.Clone(others), "known") {
		if w.lab.all()[name] == nil {
			t.Errorf("machine %s was ended", name)
		}
	}
}

// A pod that goes before a watch begins, as right after a start, is gone for the watch.
func TestPodThatGoesBeforeTheWatch(t *testing.T) {
	m := &member{machine: Machine{Name: "a-1"}, record: &record{Given: true}}
	b := &backend{members: map[string]*member{"a-1": m}}
	delete(b.members, "a-1")
	b.publishGone(m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var found []podgroup.Unit
	for range 2 { // and no later watch has it
		err := b.Watch(ctx, "", func(u podgroup.Unit) {
			found = append(found, u)
			cancel()
		})
		if err != nil {
			t.Error(err)
		}
	}
	if len(found) != 1 || found[0].ID != "a-1" || found[0].Phase != podgroup.Gone {
		t.Errorf("the watch has %v", found)
	}
}
