package podengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestResize(t *testing.T) {
	requests := func(amount string) func(*corev1.Pod) {
		return first(func(c *corev1.Container) { c.Resources.Requests = cpu(amount) })
	}
	t.Run("in place", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.create(makePod("a", requests("1")))
			r.runtime.did()
			bigger := makePod("a", requests("2"))
			r.update(bigger)
			r.wantCalls("UpdateContainerResources a")
			if shares := r.runtime.updated[0].Linux.CpuShares; shares != 2048 {
				t.Errorf("the shares are %d", shares)
			}
			c := r.status(bigger).ContainerStatuses[0]
			if c.Resources.Requests.Cpu().String() != "2" || c.AllocatedResources.Cpu().String() != "2" {
				t.Errorf("resources are %v, %v allocated", c.Resources, c.AllocatedResources)
			}
			r.restart(time.Minute)
			r.after(5 * time.Minute)
			r.wantCalls()
			r.wantState(bigger, "Running a=ready")
		})
	})
	t.Run("with a restart", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			policy := first(func(c *corev1.Container) {
				c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
			})
			r.create(makePod("a", requests("1"), policy))
			bigger := makePod("a", requests("2"), policy)
			r.update(bigger)
			r.wantState(bigger, "Running a=ready#1")
			if n := r.events.count("Normal Killing {a}: Container a resize requires restart"); n != 1 {
				t.Errorf("events are %v", r.events.drain())
			}
		})
	})
	t.Run("that fails", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.create(makePod("a", requests("1")))
			r.runtime.did()
			r.runtime.intercept(func(_ context.Context, call string) error {
				if call == "UpdateContainerResources a" {
					return errors.New("too large")
				}
				return nil
			})
			bigger := makePod("a", requests("2"))
			r.update(bigger)
			r.after(time.Minute)
			if n := len(r.runtime.did()); n > 15 {
				t.Errorf("it was tried without a pause: %d calls in a minute", n)
			}
			if n := r.events.count("Warning ResizeError {a}: cannot resize container a: too large"); n != 1 {
				t.Errorf("it was reported %d times", n)
			}
			if c := r.status(bigger).ContainerStatuses[0]; c.Resources.Requests.Cpu().String() != "1" || c.AllocatedResources.Cpu().String() != "2" {
				t.Errorf("resources are %v, %v allocated", c.Resources, c.AllocatedResources)
			}
			r.wantResize(bigger, "PodResizeInProgress Error 0: cannot resize container a: too large")
			r.runtime.intercept(nil)
			r.after(lastRetry)
			r.wantResize(bigger)
		})
	})
}

// The events of a resize are the pod's: one when it has started, and one when all containers run with
// what they were given, or will when they run again.
func TestEventsOfAResize(t *testing.T) {
	asks := func(amount string, generation int64, changes ...func(*corev1.Pod)) *corev1.Pod {
		return makePod("s a b", append(changes, func(p *corev1.Pod) {
			p.Generation = generation
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Resources.Requests = cpu(amount)
			}
		})...)
	}
	const resources = ` resize %s: {"initContainers":[{"name":"s","resources":{}}],"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}},{"name":"b","resources":{"requests":{"cpu":"2"}}}],"generation":2}`
	started, completed := fmt.Sprintf("Normal ResizeStarted: Pod"+resources, "started"), fmt.Sprintf("Normal ResizeCompleted: Pod"+resources, "completed")
	ofResize := func(r *rig) (list []string) {
		for _, e := range r.events.drain() {
			if strings.Contains(e, "Resize") {
				list = append(list, e)
			}
		}
		return list
	}
	byRestart := func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	}
	for name, changes := range map[string][]func(*corev1.Pod){"in place": nil, "by a restart": {byRestart}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.create(asks("1", 1, changes...))
				r.events.drain()
				r.update(asks("2", 2, changes...))
				r.after(resync)
				if got := ofResize(r); !slices.Equal(got, []string{started, completed}) {
					t.Errorf("events are %q", got)
				}
			})
		})
	}
	for name, restarts := range map[string]bool{"that fails for a while": false, "of which a part is done by the next process": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.create(asks("1", 1))
				r.events.drain()
				r.runtime.intercept(func(_ context.Context, call string) error {
					if call == "UpdateContainerResources b" {
						return errors.New("not now")
					}
					return nil
				})
				r.update(asks("2", 2))
				r.after(time.Minute)
				if got := ofResize(r); !slices.Equal(got, []string{started, "Warning ResizeError {b}: cannot resize container b: not now"}) {
					t.Errorf("events are %q", got)
				}
				if restarts {
					r.end()
				}
				r.runtime.intercept(nil)
				if restarts {
					r.begin()
				}
				r.after(lastRetry)
				if got := ofResize(r); !slices.Equal(got, []string{completed}) {
					t.Errorf("once it is done, events are %q", got)
				}
			})
		})
	}
	t.Run("of a pod that ends", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.create(asks("1", 1))
			r.events.drain()
			r.runtime.intercept(func(_ context.Context, call string) error {
				if call == "UpdateContainerResources b" {
					return errors.New("not now")
				}
				return nil
			})
			bigger := asks("2", 2)
			r.update(bigger)
			r.delete(bigger, 0)
			r.after(10 * time.Second)
			if got := ofResize(r); slices.Contains(got, completed) {
				t.Errorf("events are %q", got)
			}
		})
	})
}

// A container that does not run has the resources with which it is started next. One that
// was created with others gets them once it runs, also if this process ends in between.
func TestResizeOfAContainerThatDoesNotRun(t *testing.T) {
	requests := func(amount string) func(*corev1.Pod) {
		return first(func(c *corev1.Container) { c.Resources.Requests = cpu(amount) })
	}
	want := func(r *rig, pod *corev1.Pod, state string) {
		t.Helper()
		r.wantState(pod, state)
		if c := r.status(pod).ContainerStatuses[0]; c.Resources.Requests.Cpu().String() != "2" || c.AllocatedResources.Cpu().String() != "2" {
			t.Errorf("resources are %v, %v allocated", c.Resources, c.AllocatedResources)
		}
	}
	t.Run("ended", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.runtime.plans["a"] = plan{runs: time.Second}
			r.create(makePod("a b", never, requests("1")))
			r.after(3 * time.Second)
			bigger := makePod("a b", never, requests("2"))
			r.update(bigger)
			r.after(resync)
			want(r, bigger, "Running a=Completed/0 b=ready")
			r.restart(time.Minute)
			want(r, bigger, "Running a=Completed/0 b=ready")
		})
	})
	t.Run("created", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.createdOnly(makePod("a", requests("1")))
			r.runtime.intercept(func(_ context.Context, call string) error {
				if call == "StartContainer a" {
					return errors.New("not now")
				}
				return nil
			})
			r.begin()
			bigger := makePod("a", requests("2"))
			r.update(bigger)
			want(r, bigger, "Pending a=ContainerCreating")
			r.end()
			r.runtime.intercept(nil)
			r.runtime.did()
			r.begin()
			r.after(lastRetry)
			want(r, bigger, "Running a=ready")
			r.wantCalls("StartContainer a", "UpdateContainerResources a")
		})
	})
}

// A memory limit does not fall to what the container uses, or less: the kernel would
// kill it.
func TestMemoryInUseIsNotTaken(t *testing.T) {
	limited := func(amount string) *corev1.Pod {
		return makePod("a", first(func(c *corev1.Container) { c.Resources.Limits = memory(amount) }))
	}
	const refused = `PodResizeInProgress Error 0: cannot decrease memory limits: attempting to set container "a" memory limit (268435456) below current usage`
	inBubble(t, func(r *rig) {
		r.create(limited("1Gi"))
		r.runtime.did()
		count(r, memoryOf(r, "a", 700<<20))
		smaller := limited("256Mi")
		r.update(smaller)
		r.wantCalls()
		r.wantState(smaller, "Running a=ready")
		r.wantResize(smaller, refused)
		count(r, memoryOf(r, "a", 256<<20))
		r.restart(time.Second)
		r.after(time.Minute)
		r.wantCalls()
		r.wantResize(smaller, refused)
		if c := r.status(smaller).ContainerStatuses[0]; c.Resources.Limits.Memory().String() != "1Gi" {
			t.Errorf("resources are %v", c.Resources)
		}
		count(r, memoryOf(r, "a", 256<<20-1))
		r.after(lastRetry)
		r.wantCalls("UpdateContainerResources a")
		r.wantResize(smaller)
	})
	for name, test := range map[string]struct {
		before, after string
		usage         func(*rig)
		want          []string
	}{
		"more": {"1Gi", "2Gi", func(*rig) {}, nil},
		"a first limit": {"", "256Mi", func(r *rig) { count(r, memoryOf(r, "a", 700<<20)) },
			[]string{refused}},
		"no figures": {"1Gi", "256Mi", func(r *rig) { count(r, statsOf(r, "a")) },
			[]string{`PodResizeInProgress Error 0: cannot decrease memory limits: missing container "a" memory usage`}},
		"no statistics": {"1Gi", "256Mi", func(r *rig) {
			r.runtime.intercept(func(_ context.Context, call string) error {
				if call == "ListContainerStats" {
					return errors.New("not now")
				}
				return nil
			})
		}, []string{`PodResizeInProgress Error 0: cannot decrease memory limits: unable to read memory usage of container "a": not now`}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.create(limited(test.before))
				test.usage(r)
				pod := limited(test.after)
				r.update(pod)
				r.wantResize(pod, test.want...)
			})
		})
	}
}

// memory is an amount of it, or none.
func memory(amount string) corev1.ResourceList {
	if amount == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}
}

// memoryOf is what the runtime reports of a container that uses so much memory.
func memoryOf(r *rig, name string, bytes uint64) *runtimeapi.ContainerStats {
	s := statsOf(r, name, 0, 0, 0, 0)
	s.Memory.UsageBytes = &runtimeapi.UInt64Value{Value: bytes}
	return s
}

// wantResize checks what the status says of a resize, as "TYPE REASON GENERATION:
// MESSAGE".
func (r *rig) wantResize(pod *corev1.Pod, want ...string) {
	r.t.Helper()
	var got []string
	for _, c := range r.status(pod).Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			got = append(got, fmt.Sprintf("%s %s %d: %s", c.Type, c.Reason, c.ObservedGeneration, c.Message))
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("conditions are %q, want %q", got, want)
	}
}

// A resize has to fit the node: it waits for what other pods have, and is not
// done if the node is too small.
func TestResizeHasToFit(t *testing.T) {
	asks := func(amount string, generation int64) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Generation = generation
			pod.Spec.Containers[0].Resources.Requests = cpu(amount)
		}
	}
	ofFourCPUs := func(r *rig) {
		r.cfg.NodeAllocatable = func() corev1.ResourceList { return cpu("4") }
	}
	wantCPU := func(r *rig, pod *corev1.Pod, want string) {
		t.Helper()
		if c := r.status(pod).ContainerStatuses[0]; c.AllocatedResources.Cpu().String() != want || c.Resources.Requests.Cpu().String() != want {
			t.Errorf("%v CPUs are allocated, and %v used, want %s", c.AllocatedResources.Cpu(), c.Resources.Requests.Cpu(), want)
		}
	}
	t.Run("deferred", func(t *testing.T) {
		inBubbleWith(t, ofFourCPUs, func(r *rig) {
			other, done := makePod("b", asks("2", 1)), makePod("c", asks("2", 1), never)
			r.runtime.plans["c"] = plan{runs: time.Second}
			r.create(done)
			r.after(5 * time.Second)
			r.create(other)
			r.create(makePod("a", asks("1", 1)))
			r.events.drain()
			bigger := makePod("a", asks("3", 2))
			r.update(bigger)
			pending := "PodResizePending Deferred 2: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
			r.wantResize(bigger, pending)
			r.wantEvents("Warning ResizeDeferred: Pod resize Deferred: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000")
			wantCPU(r, bigger, "1")
			if held, err := r.GetPod(r.ctx, "ns", "p"); err != nil || held.Generation != 2 && held.UID == bigger.UID {
				t.Errorf("the pod is %v, %v", held, err)
			}
			r.restart(time.Minute)
			r.after(5 * time.Minute)
			wantCPU(r, bigger, "1")
			r.runtime.did()
			r.delete(other, 0)
			r.after(time.Second)
			r.wantResize(bigger)
			wantCPU(r, bigger, "3")
			r.restart(time.Minute)
			r.after(time.Minute)
			wantCPU(r, bigger, "3")
		})
	})
	t.Run("infeasible", func(t *testing.T) {
		inBubbleWith(t, ofFourCPUs, func(r *rig) {
			r.create(makePod("a", asks("1", 1)))
			bigger := makePod("a", asks("5", 2))
			r.update(bigger)
			r.wantResize(bigger, "PodResizePending Infeasible 2: Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000")
			r.restart(time.Minute)
			r.after(time.Hour)
			wantCPU(r, bigger, "1")
			if n := r.events.count("ResizeInfeasible"); n != 1 {
				t.Errorf("it was reported %d times", n)
			}
			smaller := makePod("a", asks("4", 3))
			r.update(smaller)
			r.wantResize(smaller)
			wantCPU(r, smaller, "4")
		})
	})
}

// Pods that wait for room are served by priority, then by QoS class, then by time.
func TestDeferredResizesHaveAnOrder(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.cfg.NodeAllocatable = func() corev1.ResourceList { return cpu("10") }
	}, func(r *rig) {
		asking := func(name, amount string, priority int32, guaranteed bool) *corev1.Pod {
			return makePod(name, first(func(c *corev1.Container) {
				c.Resources.Requests = cpu(amount)
				if guaranteed {
					c.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Mi")
					c.Resources.Limits = c.Resources.Requests
				}
			}), func(pod *corev1.Pod) { pod.Spec.Priority = &priority })
		}
		big := asking("big", "6", 0, false)
		r.create(big)
		type size func(amount string) *corev1.Pod
		waiting := []size{ // in the order in which they are served
			func(amount string) *corev1.Pod { return asking("urgent", amount, 1000, false) },
			func(amount string) *corev1.Pod { return asking("guaranteed", amount, 0, true) },
			func(amount string) *corev1.Pod { return asking("early", amount, 0, false) },
			func(amount string) *corev1.Pod { return asking("late", amount, 0, false) },
		}
		for _, pod := range waiting {
			r.create(pod("1"))
		}
		for _, i := range []int{2, 3, 1, 0} {
			r.update(waiting[i]("4"))
			r.after(time.Second)
		}
		r.delete(big, 0) // there are 6, for each of them 3 more
		r.after(5 * time.Minute)
		served := func() (n int) {
			t.Helper()
			for i, pod := range waiting {
				if c := r.status(pod("4")).ContainerStatuses[0]; c.AllocatedResources.Cpu().String() == "4" {
					if n != i {
						t.Errorf("pod %d is served before those before it", i)
					}
					n++
				}
			}
			return n
		}
		if n := served(); n != 2 {
			t.Errorf("%d are served, want 2", n)
		}
		r.restart(time.Minute)
		r.update(waiting[0]("1"))
		r.after(time.Second)
		if c := r.status(waiting[2]("4")).ContainerStatuses[0]; c.AllocatedResources.Cpu().String() != "4" {
			t.Errorf("the one that has waited longest has %v CPUs", c.AllocatedResources.Cpu())
		}
	})
}

// A resize that waits may take one resource, and leave another to a pod that is
// served before it in vain.
func TestDeferredResizeMakesRoom(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.cfg.NodeAllocatable = func() corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi")}
		}
	}, func(r *rig) {
		asking := func(name, cpus, memory string, priority int32) *corev1.Pod {
			return makePod(name, first(func(c *corev1.Container) {
				c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse(memory)}
			}), func(pod *corev1.Pod) { pod.Spec.Priority = &priority })
		}
		other, urgent, late := asking("other", "2", "0", 0), asking("urgent", "1", "1Gi", 1), asking("late", "1", "3Gi", 0)
		for _, pod := range []*corev1.Pod{other, urgent, late} {
			r.create(pod)
		}
		r.update(asking("urgent", "1", "3Gi", 1)) // waits for memory of the late one
		r.update(asking("late", "3", "1Gi", 0))   // waits for CPUs of the other one
		r.wantResize(urgent, "PodResizePending Deferred 0: Node didn't have enough resource: memory, requested: 3221225472, used: 3221225472, capacity: 4294967296")
		r.delete(other, 0)
		r.after(time.Second)
		for _, pod := range []*corev1.Pod{urgent, late} {
			r.wantResize(pod)
		}
	})
}

func TestRefuse(t *testing.T) {
	memory := func(amount string) *corev1.Pod {
		return makePod("a", first(func(c *corev1.Container) {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}
		}))
	}
	node := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	for name, c := range map[string]struct {
		before, wanted string
		others         []*corev1.Pod
		want           string
	}{
		"room":                      {"1Mi", "2Mi", nil, ""},
		"all of it":                 {"1Mi", "1Gi", nil, ""},
		"more than all":             {"1Mi", "1025Mi", nil, "Infeasible: Node didn't have enough capacity: memory, requested: 1074790400, capacity: 1073741824"},
		"more than is left":         {"1Mi", "1Gi", []*corev1.Pod{memory("1Mi")}, "Deferred: Node didn't have enough resource: memory, requested: 1073741824, used: 1048576, capacity: 1073741824"},
		"less, on a crowded node":   {"1Gi", "512Mi", []*corev1.Pod{memory("1Gi")}, ""},
		"as much, on a crowded one": {"1Gi", "1Gi", []*corev1.Pod{memory("1Gi")}, ""},
	} {
		got := ""
		if r := refuse(memory(c.before), memory(c.wanted), c.others, node); r != nil {
			got = r.Reason + ": " + r.Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	cpus := makePod("a", first(func(c *corev1.Container) { c.Resources.Requests = cpu("100") }))
	if r := refuse(memory("1Mi"), cpus, nil, node); r != nil {
		t.Errorf("what the node does not count is refused: %+v", r)
	}
}
