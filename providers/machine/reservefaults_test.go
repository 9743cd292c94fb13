package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/machinetest"
)

// edit changes the record of a machine, while the node does not run.
func (w *world) edit(name string, change func(r *record)) {
	w.t.Helper()
	path := w.backend.records.path(name)
	data, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		w.t.Fatal(err)
	}
	change(&r)
	if data, err = json.Marshal(&r); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// The reserve has used up the quota: a pod for which no machine can be made gets one in reserve as soon
// as one is ready, and no second one later.
func TestPodWhoseMachineCannotBeMadeGetsOneInReserve(t *testing.T) {
	for _, lost := range []bool{false, true} { // the answer, and not the machine
		w := reserving(t, 1).start()
		m := w.lab.of(w.hasReserve(1)[0])
		w.lab.halt(m) // it begins again
		w.eventually("it is not ready", func() error {
			if len(w.reserve()) > 0 {
				return errors.New("it is")
			}
			return nil
		})
		w.lab.set(func() {
			if lost {
				w.lab.lost, w.lab.hidden, w.lab.silent = 1, true, true
			} else {
				w.lab.quota = 1
			}
		})
		pod := w.pod("a")
		if err := w.provider.CreatePod(t.Context(), pod); err == nil {
			t.Fatal("the pod is created")
		}
		w.lab.set(func() { w.lab.hidden, w.lab.silent = false, false; w.lab.boot(m) })
		w.eventually("the machine is ready", func() error {
			if len(w.reserve()) != 1 {
				return errors.New("it is not")
			}
			return nil
		})
		w.eventually("the pod is created", func() error {
			w.events() // of which the recorder has room for a few
			return w.provider.CreatePod(t.Context(), pod)
		})
		if got := w.machineOf(pod); got != m {
			t.Errorf("the pod is in %s, not in %s", got.Name, m.Name)
		}
		w.lab.set(func() {
			w.lab.quota = 0
			for _, one := range w.lab.machines {
				one.hidden = false
			}
		})
		w.eventually("only another one in reserve is left beside it", func() error {
			for name := range w.lab.all() {
				if !strings.HasPrefix(name, "reserve-") {
					return fmt.Errorf("there is %s", name)
				}
			}
			if n := len(w.reserve()); n != 1 {
				return fmt.Errorf("%d are in reserve", n)
			}
			return nil
		})
		w.stop()
	}
}

// What becomes free of a quota is for the pod that waits for a machine, and not for the reserve.
func TestReserveLeavesAQuotaToPods(t *testing.T) {
	w := reserving(t, 1)
	w.retry = 100 * time.Microsecond // the reserve is tried all the time
	w.start()
	w.hasReserve(1)
	w.lab.set(func() { w.lab.quota = 1 })
	a, b := w.run("a"), w.pod("b")
	if err := w.provider.CreatePod(t.Context(), b); err == nil || !strings.Contains(err.Error(), "quota") {
		t.Fatalf("the pod is created: %v", err)
	}
	w.eventually("no try is under way that began before", func() error {
		if n := len(w.backend.inReserve); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	w.lab.kill(w.machineOf(a).Name)
	w.never("another one is made for the reserve", func() bool { return len(w.lab.all()) != 0 })
	w.runPod(b, corev1.RestartPolicyNever)
	w.lab.set(func() { w.lab.quota = 2 })
	w.hasReserve(1)
}

// hanging is a driver that hangs with machines for the reserve.
type hanging struct {
	*lab
	until chan struct{}
}

func (h hanging) Create(ctx context.Context, spec Spec) (Machine, error) {
	if strings.HasPrefix(spec.Name, "reserve-") {
		select {
		case <-h.until:
		case <-ctx.Done():
			return Machine{}, context.Cause(ctx)
		}
	}
	return h.lab.Create(ctx, spec)
}

// A driver that hangs with machines for the reserve, however many these are, makes those of pods.
func TestDriverThatHangsWithTheReserve(t *testing.T) {
	w := reserving(t, creations)
	h := hanging{w.lab, make(chan struct{})}
	w.driver = h
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("the driver hangs", func() error {
		if n := len(w.backend.creations); n < creationsInReserve {
			return fmt.Errorf("it makes %d machines", n)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.provider.CreatePod(ctx, w.pod("a")); err != nil {
		t.Errorf("the pod is not created: %v", err)
	}
	close(h.until)
	w.hasReserve(creations)
}

// Machines that are not ended are paid for: there are no more of them than there shall be beside those
// that take their place.
func TestReserveThatIsNotEnded(t *testing.T) {
	w := reserving(t, 2)
	w.cfg.BootTimeout = metav1.Duration{Duration: 100 * time.Millisecond}
	w.lab.silent, w.lab.lingers = true, true
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("others take the place of those that do not start", func() error {
		if n := len(w.lab.all()); n < 4 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	w.eventually("these do not start either", func() error {
		w.lab.mu.Lock()
		defer w.lab.mu.Unlock()
		for _, m := range w.lab.machines {
			if m.State != Ending {
				return errors.New("one is not ended yet")
			}
		}
		return nil
	})
	w.never("there are more", func() bool { return w.lab.made() > 4 })
	for name := range w.lab.all() {
		w.lab.kill(name)
	}
	w.lab.set(func() { w.lab.silent, w.lab.lingers = false, false })
	w.backend.mu.Lock()
	w.backend.cfg.BootTimeout = metav1.Duration{Duration: time.Minute}
	w.backend.mu.Unlock()
	w.hasReserve(2)
}

// A machine in reserve that ends right after its agent was seen keeps its pod only as long as it takes
// to know that.
func TestReserveThatEndsBeforeItIsSentItsPod(t *testing.T) {
	w := reserving(t, 1).start()
	w.hasReserve(1)
	pod := w.pod("a")
	_, name := w.assigned(pod)
	w.lab.kill(name)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := w.provider.CreatePod(ctx, pod); err == nil || ctx.Err() != nil {
		t.Fatalf("the pod is created, or waits for the machine that is gone: %v", err)
	}
	w.runPod(pod, corev1.RestartPolicyNever)
}

// A machine that has a certificate, and no address, is not kept for ever.
func TestReserveWithoutAnAddress(t *testing.T) {
	w := reserving(t, 1)
	w.lab.silent, w.lab.nowhere = true, true
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("a machine is made", func() error {
		if len(w.lab.all()) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	m := w.only()
	w.eventually("it has its certificate", func() error {
		if status, _ := newCaller(t, m).ask(t, nil); status != 200 {
			return fmt.Errorf("the answer is %d", status)
		}
		return nil
	})
	w.backend.mu.Lock()
	w.backend.cfg.BootTimeout = metav1.Duration{Duration: time.Millisecond}
	w.backend.mu.Unlock()
	w.isGone(m.Name)
}

// A machine with the settings of before, such as its image, is given no pod.
func TestReserveOfAnotherDriver(t *testing.T) {
	for _, change := range []func(c *Config){
		func(c *Config) { c.Exec = &ExecConfig{Command: []string{"other"}} },
		func(c *Config) { c.EC2 = json.RawMessage(`{"image":"ami-2"}`) },
	} {
		w := reserving(t, 1)
		w.cfg.EC2 = json.RawMessage(`{"image":"ami-1"}`)
		w.start()
		name := w.hasReserve(1)[0]
		w.stop()
		w.cfg.EC2 = nil
		change(&w.cfg)
		w.start()
		w.isGone(name)
		w.hasReserve(1)
		w.stop()
	}
}

// A machine that runs is not forgotten because the driver has another account, or another region, which
// knows nothing of it. With the one of before it is ended.
func TestMachinesOfAnotherAccount(t *testing.T) {
	w := reserving(t, 1).start()
	w.hasReserve(1)
	pod := w.run("a")
	a, reserve := w.machineOf(pod), w.hasReserve(1)[0]
	w.stop()
	w.edit(reserve, func(r *record) { r.Created = r.Created.Add(-time.Hour) }) // it is no machine that starts
	first, second := w.driver, newLab(t)
	second.next = 100
	w.driver = second
	w.start()
	if got := w.hasReserve(1)[0]; got == reserve {
		t.Errorf("%s is in reserve, which the driver does not list", got)
	}
	deleted := func() error { return w.provider.DeletePod(t.Context(), pod) }
	w.eventually("the pod is deleted", deleted)
	w.never("a machine that runs is forgotten", func() bool {
		w.backend.mu.Lock()
		defer w.backend.mu.Unlock()
		return w.backend.members[a.Name] == nil || w.backend.members[reserve] == nil
	})
	w.stop()
	w.driver = first
	w.start()
	w.eventually("the pod is deleted", deleted)
	w.isGone(a.Name)
	if got := w.hasReserve(1)[0]; got != reserve {
		t.Errorf("%s is in reserve, not %s", got, reserve)
	}
}

// A node that begins again while a machine starts waits for it as long as for others, also if the driver
// was asked for it long before it made it, or if the node was away for long.
func TestRestartWhileTheReserveStarts(t *testing.T) {
	for _, away := range []bool{false, true} {
		restartWhileTheReserveStarts(t, away)
	}
}

func restartWhileTheReserveStarts(t *testing.T, away bool) {
	t.Helper()
	w := reserving(t, 1)
	w.lab.silent = true
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("a machine is made", func() error {
		if len(w.lab.all()) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	m := w.only()
	w.stop()
	w.edit(m.Name, func(r *record) { r.Created = r.Created.Add(-time.Hour) })
	if away {
		w.lab.set(func() { m.Created = m.Created.Add(-time.Hour) })
	}
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.never("it is ended", func() bool { return w.lab.of(m.Name) == nil })
	w.lab.set(func() { w.lab.silent = false; w.lab.boot(m) })
	if got := w.hasReserve(1); got[0] != m.Name {
		t.Errorf("%s is in reserve", got[0])
	}
	w.stop()
}

// The clock was ahead, and was set since: a machine that is gone is not taken to be younger than each
// list, and one whose pod has ended is not kept until that time.
func TestClockThatWasAhead(t *testing.T) {
	w := newWorld(t)
	w.cfg.KeepFinished = metav1.Duration{Duration: 100 * time.Millisecond}
	w.start()
	a, b := w.run("a"), w.run("b")
	of := map[string]*labMachine{"a": w.machineOf(a), "b": w.machineOf(b)}
	w.stop()
	w.edit(of["a"].Name, func(r *record) { r.Created = r.Created.Add(time.Hour) })
	w.edit(of["b"].Name, func(r *record) {
		r.Final = &podgroup.Unit{ID: r.Name, Tags: r.Tags, Phase: podgroup.Succeeded, Ended: time.Now().Add(time.Hour)}
	})
	w.lab.kill(of["a"].Name)
	w.start()
	w.eventually("the pod whose machine is gone fails", func() error { return w.hasPhase(a, corev1.PodFailed) })
	w.isGone(of["b"].Name)
}

// A node that is given the state directory of another one does not begin: it would end its machines.
func TestStateDirectoryOfAnotherNode(t *testing.T) {
	w := reserving(t, 1).start()
	name := w.hasReserve(1)[0]
	port := machinetest.FreePort(t)
	for _, change := range []func(*nodeutil.ProviderConfig, *Config){
		func(init *nodeutil.ProviderConfig, _ *Config) { init.Node.Name = "vk-2" },
		func(_ *nodeutil.ProviderConfig, c *Config) { c.Cluster = "home-2" },
	} {
		init, cfg := w.cluster.Config(), w.cfg
		cfg.Bootstrap = BootstrapConfig{Listen: fmt.Sprintf("127.0.0.1:%d", port), URL: fmt.Sprintf("https://127.0.0.1:%d", port)}
		change(&init, &cfg)
		b, err := newBackend(init, cfg, w.lab)
		if err == nil {
			t.Error("it begins", b.Close())
		} else if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), `node "vk" of cluster "home"`) {
			t.Error(err)
		}
	}
}

// What is in reserve, of all nodes of the process, is in metrics.
func TestReserveMetrics(t *testing.T) {
	w := reserving(t, 2)
	registry := prometheus.NewRegistry()
	w.adjust = func(init *nodeutil.ProviderConfig) { init.Metrics = registry }
	metrics := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for _, family := range families {
			if !strings.HasPrefix(family.GetName(), "virtual_kubelet_machine_") {
				continue
			}
			for _, m := range family.GetMetric() {
				name := strings.TrimPrefix(family.GetName(), "virtual_kubelet_machine_")
				for _, label := range m.GetLabel() {
					name += " " + label.GetValue()
				}
				found[name] = m.GetGauge().GetValue()
			}
		}
		return found
	}
	is := func(ready, starting, ending, wanted float64) {
		t.Helper()
		want := fmt.Sprint(map[string]float64{"reserve ready ": ready, "reserve starting ": starting, "reserve ending ": ending, "reserve_wanted ": wanted})
		w.eventually("the metrics are right", func() error {
			if got := fmt.Sprint(metrics()); got != want {
				return fmt.Errorf("they are %s, not %s", got, want)
			}
			return nil
		})
	}
	w.lab.silent = true
	w.start()
	if _, err := w.provider.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	is(0, 2, 0, 2)
	w.lab.set(func() {
		w.lab.silent, w.lab.lingers = false, true
		for _, m := range w.lab.machines {
			w.lab.boot(m)
		}
	})
	is(2, 0, 0, 2)
	w.stop()
	if got := metrics(); len(got) != 0 {
		t.Errorf("after its end there are %v", got)
	}
	w.cfg.Warm = &WarmConfig{Count: 1, CPU: ptr.To(resource.MustParse("1")), Memory: ptr.To(resource.MustParse("1Gi"))}
	w.start()
	w.hasReserve(1)
	is(1, 0, 1, 1)
}
