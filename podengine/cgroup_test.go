package podengine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A pod has its control group before its sandbox is made in it, and until it has ended.
func TestPodsHaveControlGroups(t *testing.T) {
	groups := &fakeCgroups{}
	inBubbleWith(t, func(r *rig) { r.cfg.Cgroups = groups }, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: 10 * time.Second}
		pod := makePod("a", never)
		r.create(pod)
		groups.want(t, "set p")
		if parent := r.runtime.sandboxParent(); parent != "/groups/p" {
			t.Errorf("the runtime was asked to make the sandbox in %q", parent)
		}
		r.restart(time.Second)
		groups.want(t, "set p", "set p") // what it sums up has gone with the process
		r.after(time.Minute)
		groups.want(t, "set p", "set p", "remove p")
		r.delete(pod, 0)
		r.after(time.Minute)
		groups.want(t, "set p", "set p", "remove p")
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

func (f *fakeCgroups) Remove(_ context.Context, pod *corev1.Pod) error {
	return f.do("remove " + pod.Name)
}

func (f *fakeCgroups) do(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, what)
	return f.err
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
