package machine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/machinetest"
)

// reserving is a world with machines in reserve, once it is started.
func reserving(t *testing.T, count int) *world {
	w := newWorld(t)
	w.retry = 50 * time.Millisecond
	w.cfg.Warm = &WarmConfig{Count: count, CPU: ptr.To(resource.MustParse("1")), Memory: ptr.To(resource.MustParse("1Gi"))}
	return w
}

// reserve returns the machines in reserve that are ready.
func (w *world) reserve() (ready []string) {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	for name, m := range w.backend.members {
		if w.backend.isReadyLocked(m) && m.greeted {
			ready = append(ready, name)
		}
	}
	return ready
}

func (w *world) hasReserve(count int) []string {
	w.t.Helper()
	if _, err := w.provider.GetPods(w.t.Context()); err != nil { // which begins the background work
		w.t.Fatal(err)
	}
	w.eventually(fmt.Sprintf("there are %d machines in reserve", count), func() error {
		if n := len(w.reserve()); n != count {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	return w.reserve()
}

// machineOf returns the machine that has a pod, going by what is in the machines.
func (w *world) machineOf(pod *corev1.Pod) *labMachine {
	w.t.Helper()
	var found []*labMachine
	for _, m := range w.lab.all() {
		w.lab.mu.Lock()
		pods := m.pods
		w.lab.mu.Unlock()
		if pods == nil {
			continue
		}
		all, err := pods.GetPods(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for _, one := range all {
			if one.UID == pod.UID {
				found = append(found, m)
			}
		}
		if len(all) > 1 {
			w.t.Errorf("machine %s has %d pods", m.Name, len(all))
		}
	}
	if len(found) != 1 {
		w.t.Fatalf("pod %s is in %d machines", pod.Name, len(found))
	}
	return found[0]
}

func (w *world) events() (all string) {
	for len(w.cluster.Events.Events) > 0 {
		all += <-w.cluster.Events.Events + "\n"
	}
	return all
}

// isGone waits until a machine is gone.
func (w *world) isGone(name string) {
	w.t.Helper()
	w.eventually("machine "+name+" is gone", func() error {
		if w.lab.of(name) != nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// assigned has a pod get a machine, as Create does, and the node ends right after that.
func (w *world) assigned(pod *corev1.Pod) (m *member, name string) {
	w.t.Helper()
	r, err := w.backend.requestAgain(w.t.Context(), pod)
	if err != nil {
		w.t.Fatal(err)
	}
	slot, m, err := w.backend.current(w.t.Context(), r)
	if err != nil || m != nil {
		w.t.Fatalf("the pod has a machine: %v, %v", m, err)
	}
	if m, err = w.backend.assign(w.t.Context(), slot, r); err != nil || m == nil {
		w.t.Fatalf("the pod gets machine %v: %v", m, err)
	}
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	return m, m.machine.Name
}

// A pod gets a machine in reserve at once, and keeps it. The driver's tags of that stay what they
// were, and another takes its place.
func TestPodGetsAMachineInReserve(t *testing.T) {
	w := reserving(t, 1).start()
	names := w.hasReserve(1)
	w.lab.set(func() { w.lab.silent = true }) // no other would start
	pod := w.run("a")
	m := w.machineOf(pod)
	if m.Name != names[0] || m.Tags[podgroup.TagUID] != "" {
		t.Errorf("the pod is in machine %s with tags %v, not %s", m.Name, m.Tags, names[0])
	}
	if text := w.events(); !strings.Contains(text, "MachineAssigned The pod has machine "+m.Name) || strings.Contains(text, "MachineStarting") {
		t.Errorf("its events are %s", text)
	}
	status, err := w.status(pod)
	if err != nil || status.PodIP != m.Address || status.StartTime.Time.Before(pod.CreationTimestamp.Time) {
		t.Errorf("the status is %+v: %v", status, err)
	}
	w.eventually("another machine is made", func() error {
		if n := w.lab.made(); n != 2 {
			return fmt.Errorf("%d were made", n)
		}
		return nil
	})
	w.lab.set(func() { m.hidden = true })
	time.Sleep(2 * w.cfg.Refresh.Duration)
	w.lab.set(func() { m.hidden = false })
	for range 2 {
		w.stop()
		w.start()
		w.eventually("the pod is adopted", func() error { return w.hasPhase(pod, corev1.PodRunning) })
		w.never("the pod has left its machine", func() bool { return w.machineOf(pod) != m || w.lab.made() > 2 })
	}
	if err := w.provider.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.cluster.RemovePod(pod)
	w.isGone(m.Name)
}

// A pod that has to wait is in an event, and gets a machine of its own.
func TestPodForWhichThereIsNoReserve(t *testing.T) {
	w := reserving(t, 1).start()
	names := w.hasReserve(1)
	pod := w.pod("large")
	pod.Spec.Containers[0].Resources.Requests = list("cpu=1 memory=2Gi")
	w.runPod(pod, corev1.RestartPolicyNever)
	if m := w.machineOf(pod); m.Name == names[0] || m.spec.Memory != 2<<30 {
		t.Errorf("the pod is in %s with %d bytes of memory", m.Name, m.spec.Memory)
	}
	if text := w.events(); !strings.Contains(text, "MachineStarting") || strings.Contains(text, "MachineAssigned") {
		t.Errorf("its events are %s", text)
	}
}

// Pods that are created at the same time never get the same machine.
func TestPodsAtTheSameTimeGetMachinesOfTheirOwn(t *testing.T) {
	w := reserving(t, 4).start()
	w.hasReserve(4)
	c := w.createMany(8)
	for _, pod := range c.pods {
		w.eventually("pod "+pod.Name+" runs", func() error { return w.hasPhase(pod, corev1.PodRunning) })
	}
	warm := 0
	for _, pod := range c.pods {
		if strings.HasPrefix(w.machineOf(pod).Name, "reserve-") {
			warm++
		}
	}
	if warm < 4 {
		t.Errorf("%d pods got machines in reserve", warm)
	}
}

// The node ends right after a pod got a machine, or after it was sent: the next process has the pod
// there, and nowhere else.
func TestRestartAfterAnAssignment(t *testing.T) {
	for _, sent := range []bool{false, true} {
		w := reserving(t, 1).start()
		w.hasReserve(1)
		a := w.pod("a")
		m, name := w.assigned(a)
		if sent {
			if err := w.backend.linkTo(m).give(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
		w.stop()
		w.start()
		b := w.run("b")
		if got := w.machineOf(b); got.Name == name {
			t.Error("another pod has got the machine")
		}
		w.runPod(a, corev1.RestartPolicyNever)
		if got := w.machineOf(a); got.Name != name {
			t.Errorf("the pod is in %s, not in %s", got.Name, name)
		}
		w.stop()
	}
}

// A pod that got a machine in reserve while it waited for the driver's turn gets no other one.
func TestPodThatWaitsGetsAMachineInReserve(t *testing.T) {
	w := reserving(t, 1).start()
	m := w.lab.of(w.hasReserve(1)[0])
	w.lab.halt(m)
	for range creations { // the driver is busy
		w.backend.creations <- struct{}{}
	}
	pod := w.pod("a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.provider.CreatePod(ctx, pod); err == nil {
		t.Fatal("the pod is created")
	}
	w.lab.set(func() { w.lab.boot(m) })
	w.hasReserve(1)
	w.runPod(pod, corev1.RestartPolicyNever)
	if w.machineOf(pod) != m {
		t.Error("the pod has another machine")
	}
	for range creations {
		<-w.backend.creations
	}
	w.hasReserve(1)
	if w.lab.made() != 2 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}

// A machine whose pod is not wanted any more is ended, and does not come back to the reserve.
func TestAssignedMachineIsNotUsedAgain(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := reserving(t, 1).start()
		w.hasReserve(1)
		a := w.pod("a")
		_, name := w.assigned(a)
		w.lab.set(func() { w.lab.lingers = true })
		w.cluster.RemovePod(a)
		if restart {
			w.stop()
			w.start()
		}
		b := w.run("b")
		if w.machineOf(b).Name == name {
			t.Error("another pod has got the machine")
		}
		w.isDeleted(w.lab.of(name))
		w.run("c") // the end of that machine holds up nobody
		w.lab.kill(name)
		w.eventually("its record is removed", func() error {
			if _, err := os.Stat(w.backend.records.path(name)); err == nil {
				return errors.New("it is there")
			}
			return nil
		})
		w.stop()
	}
}

// A node that has lost its state does not know which pods are in machines that were in reserve: it
// creates none before these are gone. The same goes for records alone.
func TestReserveWhoseStateIsLost(t *testing.T) {
	for _, test := range []struct {
		lost string
		warm bool
	}{{"", true}, {"", false}, {"machines", true}} {
		w := reserving(t, 1).start()
		w.hasReserve(1)
		a := w.run("a")
		m := w.machineOf(a)
		w.hasReserve(1)
		left := w.lab.all()
		w.stop()
		if err := os.RemoveAll(filepath.Join(w.cfg.StateDir, test.lost)); err != nil {
			t.Fatal(err)
		}
		w.lab.set(func() { w.lab.lingers = true })
		w.cfg.MissingTimeout = metav1.Duration{Duration: 3 * time.Second}
		if !test.warm {
			w.cfg.Warm = nil
		}
		w.start()
		b := w.pod("b")
		w.never("a pod is created", func() bool { return w.provider.CreatePod(t.Context(), b) == nil })
		w.isDeleted(m)
		if test.lost != "" { // else its authority is another one
			if status, _ := newCaller(t, m).ask(t, nil); status == http.StatusOK {
				t.Error("the machine has another certificate")
			}
		}
		hide := func(hidden bool) {
			w.lab.set(func() {
				for _, one := range left {
					one.hidden = hidden
				}
			})
		}
		hide(true)
		for range 10 {
			if err := w.provider.CreatePod(t.Context(), b); err == nil {
				t.Fatal("a pod is created while lists lack a machine for a moment")
			}
			time.Sleep(50 * time.Millisecond)
		}
		hide(false)
		w.never("a pod is created", func() bool { return w.provider.CreatePod(t.Context(), b) == nil })
		for name := range left {
			w.lab.kill(name)
		}
		w.run("b")
		if text := w.events(); !strings.Contains(text, "Machine") {
			t.Errorf("its events are %q", text)
		}
		w.stop()
	}
}

// A machine in reserve of which there is no record is refused for good, also before it is ended.
func TestReserveWithoutARecord(t *testing.T) {
	w := reserving(t, 1).start()
	m := w.lab.of(w.hasReserve(1)[0])
	w.stop()
	if err := os.RemoveAll(filepath.Join(w.cfg.StateDir, "machines")); err != nil {
		t.Fatal(err)
	}
	w.adjust = func(init *nodeutil.ProviderConfig) { init.MayBegin = func() bool { return false } }
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, _ := newCaller(t, m).ask(t, nil); status != http.StatusForbidden {
		t.Errorf("its request for a certificate is answered with %d", status)
	}
}

// If it cannot be recorded who has a machine, no other pod gets it.
func TestAssignmentThatCannotBeRecorded(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		w := reserving(t, 1).start()
		name := w.hasReserve(1)[0]
		dir := filepath.Join(w.cfg.StateDir, "machines")
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		a, b := w.pod("a"), w.pod("b")
		if err := w.provider.CreatePod(t.Context(), a); !errdefs.IsUnavailable(err) {
			t.Fatalf("the pod is created: %v", err)
		}
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		if !wanted {
			w.cluster.RemovePod(a)
		}
		w.runPod(b, corev1.RestartPolicyNever)
		if w.machineOf(b).Name == name {
			t.Error("another pod has got the machine")
		}
		if wanted {
			w.runPod(a, corev1.RestartPolicyNever)
			if w.machineOf(a).Name != name {
				t.Error("the pod has another machine")
			}
		} else {
			w.isGone(name)
		}
		w.stop()
	}
}

// A machine that was lost is replaced by one in reserve, and one in reserve by one that is made.
func TestReserveReplacesLostMachines(t *testing.T) {
	w := reserving(t, 1)
	w.cfg.ReplaceLost = true
	w.start()
	w.hasReserve(1)
	pod := w.runs("a", corev1.RestartPolicyAlways)
	for n := range int32(2) {
		names := w.hasReserve(1)
		m := w.machineOf(pod)
		w.lab.kill(m.Name)
		w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, n+1) })
		if got := w.machineOf(pod); got.Name != names[0] {
			t.Errorf("the pod is in %s, not in %s", got.Name, names[0])
		}
	}
	w.stop()
	w.cfg.Warm = nil
	w.start()
	w.eventually("the pod is adopted", func() error { return w.restarted(pod, 2) })
	w.eventually("nothing is in reserve", func() error {
		if n := len(w.lab.all()); n != 1 {
			return fmt.Errorf("there are %d machines", n)
		}
		return nil
	})
	w.lab.kill(w.machineOf(pod).Name)
	w.eventually("the pod runs in another machine", func() error { return w.restarted(pod, 3) })
	if m := w.machineOf(pod); !strings.HasSuffix(m.Name, "-4") { // no name is used again
		t.Errorf("the machine is %s", m.Name)
	}
}

// What is not as it shall be any more is ended, and made again.
func TestReserveIsKept(t *testing.T) {
	w := reserving(t, 2).start()
	names := w.hasReserve(2)
	w.lab.kill(names[0])
	w.eventually("another takes its place", func() error {
		if all := w.reserve(); len(all) != 2 || all[0] == names[0] || all[1] == names[0] {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
	taken := w.lab.of(names[1])
	w.lab.set(func() { taken.TakenAt = time.Now().Add(time.Minute) })
	w.isGone(taken.Name)
	w.hasReserve(2)
	w.stop()
	made := w.lab.made()
	w.cfg.Warm.Count = 1
	w.start()
	kept := w.hasReserve(1)
	w.eventually("the other is ended", func() error {
		if n := len(w.lab.all()); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	w.never("machines are made", func() bool { return w.lab.made() != made })
	w.stop()
	w.cfg.Warm.CPU = ptr.To(resource.MustParse("2"))
	w.start()
	w.isGone(kept[0])
	if m := w.lab.of(w.hasReserve(1)[0]); m.spec.CPU != 2000 {
		t.Errorf("it has %d thousandths of a core", m.spec.CPU)
	}
	files, err := os.ReadDir(filepath.Join(w.cfg.StateDir, "machines"))
	if err != nil || len(files) != 1 {
		t.Errorf("the records are %v: %v", files, err)
	}
}

// A machine that does not start is ended, and the next one made later each time. The same goes for
// a driver that makes none.
func TestReserveThatDoesNotStart(t *testing.T) {
	w := reserving(t, 1)
	w.retry = 300 * time.Millisecond
	w.cfg.BootTimeout = metav1.Duration{Duration: 200 * time.Millisecond}
	w.lab.silent = true
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("three were made", func() error {
		if n := w.lab.made(); n < 3 {
			return fmt.Errorf("%d were", n)
		}
		return nil
	})
	w.never("more than two at once", func() bool { return len(w.lab.all()) > 1 || w.lab.made() > 4 })
	w.lab.set(func() { w.lab.silent = false })
	w.hasReserve(1)
}

func TestReserveWhoseDriverFails(t *testing.T) {
	w := reserving(t, 2)
	w.lab.failing = true
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is tried", func() error {
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		for _, state := range w.backend.reserves {
			if state.failures > 2 {
				return nil
			}
		}
		return errors.New("it is not")
	})
	w.lab.set(func() { w.lab.failing, w.lab.lost = false, 1 })
	w.hasReserve(2)
	if w.lab.made() != 2 {
		t.Errorf("%d were made", w.lab.made())
	}
}

// A process that ends while machines start, or may not act, makes and ends none.
func TestReserveOfTwoProcesses(t *testing.T) {
	may := true
	w := reserving(t, 1)
	w.adjust = func(init *nodeutil.ProviderConfig) {
		init.MayBegin = func() bool { w.lab.mu.Lock(); defer w.lab.mu.Unlock(); return may }
	}
	w.lab.silent, may = true, false
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.never("a machine was made", func() bool { return w.lab.made() > 0 })
	w.lab.set(func() { may = true })
	w.eventually("a machine is made", func() error {
		if w.lab.made() != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	m := w.only()
	w.stop()
	w.start() // which knows it
	w.lab.set(func() { w.lab.silent = false; w.lab.boot(m) })
	w.hasReserve(1)
	// Another one has been made before, and has read nothing yet.
	port := machinetest.FreePort(t)
	w.cfg.Bootstrap = BootstrapConfig{Listen: fmt.Sprintf("127.0.0.1:%d", port), URL: fmt.Sprintf("https://127.0.0.1:%d", port)}
	next, err := newBackend(w.cluster.Config(), w.cfg, w.lab)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := podgroup.New(w.cluster.Config(), next, next.options())
	if err != nil {
		t.Fatal(err)
	}
	a := w.run("a")
	if w.machineOf(a) != m {
		t.Errorf("the pod is in another machine than %s", m.Name)
	}
	w.stop()
	w.provider, w.backend = second, next
	b := w.run("b")
	if w.machineOf(b) == m || w.machineOf(a) != m {
		t.Error("another pod has got the machine")
	}
}

// A machine whose agent cannot be reached is given no pod, and is ended if that lasts.
func TestReserveThatCannotBeReached(t *testing.T) {
	w := reserving(t, 1)
	w.cfg.UnreachableTimeout = metav1.Duration{Duration: 2 * time.Second}
	w.start()
	m := w.lab.of(w.hasReserve(1)[0])
	w.lab.halt(m)
	pod := w.run("a")
	if w.machineOf(pod) == m {
		t.Error("the pod is in the machine that cannot be reached")
	}
	w.isGone(m.Name)
	w.hasReserve(1)
}

// Lists that lack a machine in reserve for a moment do not end it, and meanwhile no pod gets it.
func TestReserveThatListsLackForAMoment(t *testing.T) {
	w := reserving(t, 1)
	w.cfg.MissingTimeout = metav1.Duration{Duration: time.Minute}
	w.start()
	m := w.lab.of(w.hasReserve(1)[0])
	w.lab.set(func() { m.hidden = true })
	pod := w.run("a")
	if w.machineOf(pod) == m {
		t.Error("the pod is in the machine that lists lack")
	}
	w.lab.set(func() { m.hidden = false })
	if got := w.hasReserve(1); got[0] != m.Name || w.lab.made() != 2 {
		t.Errorf("%s is in reserve; %d machines were made", got[0], w.lab.made())
	}
}

// Nothing that is in a machine before it has a pod counts, and the reserves of others are none of
// this node.
func TestHostileReserve(t *testing.T) {
	w := reserving(t, 1)
	for n, change := range []map[string]string{{podgroup.TagNodeName: "other"}, {podgroup.TagClusterName: "other"}, {podgroup.TagClusterUID: "other"}} {
		name := fmt.Sprintf("reserve-other-%d", n)
		tags := map[string]string{podgroup.TagClusterName: "home", podgroup.TagClusterUID: "cluster-uid", podgroup.TagNodeName: "vk", tagMachine: name, tagReserve: w.cfg.kinds()[0].key}
		for key, value := range change {
			tags[key] = value
		}
		w.lab.machines[name] = &labMachine{Machine: Machine{Name: name, Tags: tags, State: Running}, stop: func() {}, ended: make(chan struct{})}
		close(w.lab.machines[name].ended)
	}
	w.start()
	m := w.lab.of(w.hasReserve(1)[0])
	pod := w.pod("a")
	forged := pod.DeepCopy()
	forged.UID, forged.Status.Phase = "forged", corev1.PodFailed
	w.eventually("there is a forged pod", func() error {
		w.lab.mu.Lock()
		pods := m.pods
		w.lab.mu.Unlock()
		if pods == nil {
			return errors.New("its agent starts")
		}
		return pods.CreatePod(t.Context(), forged)
	})
	w.never("it counts", func() bool {
		w.backend.mu.Lock()
		linked := w.backend.members[m.Name].link != nil
		w.backend.mu.Unlock()
		_, err := w.status(pod)
		return linked || err == nil
	})
	w.runPod(pod, corev1.RestartPolicyNever)
	if w.machineOf(pod) == m {
		t.Error("the pod is in the machine with a forged one")
	}
	w.isGone(m.Name)
	for n := range 3 {
		if w.lab.of(fmt.Sprintf("reserve-other-%d", n)) == nil {
			t.Errorf("machine %d of another node was ended", n)
		}
	}
}

// Each type has its own reserve, and pods get machines of their type.
func TestReserveOfTypes(t *testing.T) {
	w := newWorld(t)
	parsed, err := ParseConfig([]byte(strings.Replace(someTypes, "{name: large,", "{name: large, warm: 1,", 1)))
	if err != nil {
		t.Fatal(err)
	}
	w.cfg.Types, w.cfg.Resources = parsed.Types, nil
	w.start()
	name := w.hasReserve(1)[0]
	m := w.lab.of(name)
	if m.spec.Type != "large" || m.spec.CPU != 8000 || m.spec.Memory != 32<<30 || m.spec.Arguments["zone"] != "b" || m.Tags[tagType] != "large" {
		t.Errorf("the driver is asked for %+v", m.spec)
	}
	if small := w.run("small"); w.machineOf(small).spec.Type != "small" {
		t.Error("a small pod has got a large machine")
	}
	large := w.pod("large")
	large.Spec.Containers[0].Resources.Requests = list("cpu=3")
	w.runPod(large, corev1.RestartPolicyNever)
	if w.machineOf(large) != m {
		t.Error("the pod has another machine")
	}
}

func TestWarmConfig(t *testing.T) {
	for text, want := range map[string]string{
		`warm: {count: -1, cpu: 1, memory: 1Gi}`:       "warm.count: -1 is negative",
		`warm: {count: 1, memory: 1Gi}`:                "warm.cpu: it is required",
		`warm: {count: 1, cpu: 1, memory: 0}`:          "warm.memory: it is required",
		`warm: {count: 1, cpu: 1, memory: 1, size: 1}`: "warm.size",
		`warm: 1`: "warm",
		`warm: {count: 1, cpu: 1, memory: 1Gi}, types: [{name: a, cpu: 1, memory: 1}]`: "types[].warm",
		`types: [{name: a, cpu: 1, memory: 1, warm: -2}]`:                              "types[a].warm: -2 is negative",
		`types: [{name: a, cpu: 1, memory: 1, warm: {count: 1}}]`:                      "types[0].warm",
	} {
		_, err := ParseConfig([]byte("{cluster: home, stateDir: /state, exec: {command: [x]}, bootstrap: {url: \"https://10.0.0.5:10271\"}, " + text + "}"))
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "2 mistakes") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
