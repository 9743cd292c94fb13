package podengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod has its control group before its sandbox is made in it, and until it has ended.
func TestPodsHaveControlGroups(t *testing.T) {
	groups := &fakeCgroups{}
	inBubbleWith(t, func(r *rig) { r.cfg.Cgroups = groups }, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: 10 * time.Second}
		pod := makePod("a", never)
		removed := "remove BestEffort " + string(pod.UID)
		r.create(pod)
		groups.want(t, "set p")
		if parent := r.runtime.sandboxParent(); parent != "/groups/p" {
			t.Errorf("the runtime was asked to make the sandbox in %q", parent)
		}
		r.restart(time.Second)
		groups.want(t, "set p", "set p") // what it sums up has gone with the process
		r.after(time.Minute)
		groups.want(t, "set p", "set p", removed)
		r.delete(pod, 0)
		r.after(time.Minute)
		groups.want(t, "set p", "set p", removed)
	})
}

// A control group that cannot be limited or removed holds up no pod.
func TestPodsRunWithoutLimitsOfTheirControlGroup(t *testing.T) {
	groups := &fakeCgroups{err: errors.New("read-only file system")}
	inBubbleWith(t, func(r *rig) { r.cfg.Cgroups = groups }, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		r.wantState(pod, "Running a=ready")
		r.delete(pod, 0)
		r.after(time.Minute)
		if _, err := r.GetPodByUID(r.ctx, pod.Namespace, pod.Name, pod.UID); err == nil {
			t.Error("the pod is still there")
		}
	})
}

// A sandbox that a runtime makes for a process that was killed, and that comes when the
// pod has gone, brings the pod's control group back, which goes with it.
func TestControlGroupsOfOrphans(t *testing.T) {
	groups := &fakeCgroups{err: errors.New("busy")}
	inBubbleWith(t, func(r *rig) { r.cfg.Cgroups = groups }, func(r *rig) {
		r.strand("orphan")
		r.after(confirmOrphan * relistEvery)
		groups.fail(nil)
		r.after(time.Minute)
		tried := []string{"remove Guaranteed orphan", "remove Burstable orphan", "remove BestEffort orphan"}
		groups.want(t, append(tried, tried...)...)
		if n := r.runtime.left(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
}

// The control group around the containers keeps its memory until all of them run with
// lower limits, and has more before one gets more.
func TestControlGroupsShrinkLast(t *testing.T) {
	groups := &memoryCgroups{}
	inBubbleWith(t, func(r *rig) { r.cfg.Cgroups = groups }, func(r *rig) {
		limited := func(a, b string) *corev1.Pod {
			return makePod("a b", func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[1].Resources.Limits = memory(a), memory(b)
			})
		}
		r.create(limited("600Mi", "400Mi"))
		count(r, memoryOf(r, "a", 500<<20), memoryOf(r, "b", 100<<20))
		r.update(limited("300Mi", "200Mi"))
		r.after(time.Minute)
		groups.want(t, "600Mi 400Mi", "600Mi 200Mi") // a does not fit
		r.restart(time.Second)
		groups.want(t, "600Mi 200Mi")
		count(r, memoryOf(r, "a", 299<<20))
		r.after(lastRetry)
		groups.want(t, "300Mi 200Mi")
		r.update(limited("300Mi", "500Mi"))
		groups.want(t, "300Mi 500Mi")
	})
}

// memoryCgroups has the memory limits that the containers had in the pods that it was
// given.
type memoryCgroups struct {
	fakeCgroups
	limits []string
}

func (m *memoryCgroups) Set(_ context.Context, pod *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for i := range pod.Spec.Containers {
		all = append(all, pod.Spec.Containers[i].Resources.Limits.Memory().String())
	}
	m.limits = append(m.limits, strings.Join(all, " "))
	return nil
}

// want checks what the limits were since it was called last, without repetitions.
func (m *memoryCgroups) want(t *testing.T, want ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if got := slices.Compact(m.limits); !slices.Equal(got, want) {
		t.Errorf("the limits were %q, want %q", got, want)
	}
	m.limits = nil
}

// fakeCgroups has what it was asked for.
type fakeCgroups struct {
	err error

	mu   sync.Mutex
	done []string
}

func (f *fakeCgroups) Parent(_ context.Context, pod *corev1.Pod) (string, error) {
	return "/groups/" + pod.Name, nil
}

func (f *fakeCgroups) Set(_ context.Context, pod *corev1.Pod) error { return f.do("set " + pod.Name) }

func (f *fakeCgroups) Remove(_ context.Context, uid types.UID, class corev1.PodQOSClass) error {
	return f.do(fmt.Sprintf("remove %s %s", class, uid))
}

func (f *fakeCgroups) do(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, what)
	return f.err
}

func (f *fakeCgroups) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeCgroups) want(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.done, want) {
		t.Errorf("control groups: %q, want %q", f.done, want)
	}
}

// sandboxParent is where the runtime was asked to make the control groups of the
// sandboxes.
func (f *fakeRuntime) sandboxParent() (parent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, box := range f.boxes {
		parent = box.config.GetLinux().GetCgroupParent()
	}
	return parent
}
