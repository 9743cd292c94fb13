package podengine

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// shortOf has the machine be short of something while is says so.
func (r *rig) shortOf(signal eviction.Signal, is func() bool) {
	r.cfg.Eviction = Eviction{Thresholds: eviction.Thresholds{signal: {Percent: 10}}, Levels: func(context.Context) (eviction.Levels, error) {
		level := eviction.Level{Available: 50, Capacity: 100}
		if is() {
			level.Available = 1
		}
		return eviction.Levels{signal: level}, nil
	}}
}

// named is a pod of one container that is called as the pod.
func named(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := makePod(name, change...)
	pod.Name = name
	return pod
}

// endless ends only when it is killed.
var endless = plan{lingers: 1000 * time.Hour}

// A pod that is to end some time, and uses too much until then, is evicted in place of innocent ones.
func TestPodsThatEndLaterAreEvicted(t *testing.T) {
	const day = 86400
	t.Run("deleted, over its limit", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			pod := named("a", withVolume("1Mi"))
			r.runtime.plans["a"] = endless
			r.create(pod)
			r.delete(pod, day)
			r.fill(pod, 2<<20)
			r.after(20 * time.Second)
			r.wantGone(pod)
			if n := r.events.count(`Warning Evicted: Usage of EmptyDir volume "data" exceeds the limit "1Mi". `); n != 1 {
				t.Errorf("events are %v", r.events.drain())
			}
		})
	})
	t.Run("past its deadline, over its limit", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			pod := named("a", withVolume("1Mi"), func(pod *corev1.Pod) {
				pod.Spec.ActiveDeadlineSeconds, pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1), ptr.To[int64](day)
			})
			r.runtime.plans["a"] = endless
			r.create(pod)
			r.after(5 * time.Second)
			r.fill(pod, 2<<20)
			r.after(20 * time.Second)
			if s := r.status(pod); s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" {
				t.Errorf("the pod is %s: %s", s.Phase, s.Reason)
			}
		})
	})
	t.Run("deleted, under pressure", func(t *testing.T) {
		var short atomic.Bool
		inBubbleWith(t, func(r *rig) { r.shortOf(eviction.MemoryAvailable, short.Load) }, func(r *rig) {
			large, small := named("a"), named("b")
			r.runtime.plans["a"] = endless
			r.create(large)
			r.create(small)
			r.stats(large, 2<<20, 0)
			r.stats(small, 1<<20, 0)
			r.delete(large, day)
			short.Store(true)
			r.after(15 * time.Second)
			short.Store(false)
			if r.worker(large.UID) != nil {
				t.Error("the pod that uses most goes on")
			}
			r.wantState(small, "Running b=ready")
		})
	})
}

// While a pod ends that was evicted for its own limit, or was evicted before a restart, no other is evicted
// for what its end may give back; after half a minute the next one is.
func TestEvictionsOfAllKindsHoldUpTheNext(t *testing.T) {
	for name, test := range map[string]struct{ deleted, restarted bool }{
		"limit":                  {},
		"limit, and deleted":     {deleted: true},
		"limit, and a restart":   {restarted: true},
		"deleted, and a restart": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			var short atomic.Bool
			inBubbleWith(t, func(r *rig) { r.shortOf(eviction.MemoryAvailable, short.Load) }, func(r *rig) {
				full, other := named("full", withVolume("1Mi")), named("other")
				r.runtime.plans["full"] = endless
				r.create(full)
				r.create(other)
				r.stats(full, 1<<20, 0)
				r.stats(other, 1<<20, 0)
				r.runtime.intercept(func(ctx context.Context, call string) error {
					if strings.HasPrefix(call, "StopContainer full") { // not even when it is killed
						<-ctx.Done()
					}
					return nil
				})
				if test.deleted {
					r.delete(full, 86400)
				}
				r.fill(full, 2<<20)
				r.after(11 * time.Second)
				if n := r.events.count(`Warning Evicted: Usage of EmptyDir volume "data" exceeds the limit "1Mi". `); n != 1 {
					t.Errorf("events are %v", r.events.drain())
				}
				short.Store(true)
				if test.restarted {
					r.restart(time.Minute)
				}
				r.after(25 * time.Second)
				r.wantState(other, "Running other=ready")
				r.after(30 * time.Second)
				if s := r.status(other); s.Reason != eviction.Reason {
					t.Errorf("after a while the other one is %s: %s", s.Phase, s.Reason)
				}
				r.runtime.intercept(nil)
			})
		})
	}
}

// A disk that is full has what ended pods have written removed before any pod that runs is evicted. How they
// ended stays.
func TestEndedPodsGiveBackWhatTheirContainersHaveWritten(t *testing.T) {
	for name, takes := range map[string]time.Duration{"at once": 0, "slowly": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool
			inBubbleWith(t, func(r *rig) {
				r.shortOf(eviction.NodeFsAvailable, func() bool {
					return full.Load() && (r.runtime.newest("done") != nil || r.runtime.newest("failed") != nil)
				})
			}, func(r *rig) {
				r.runtime.plans["done"], r.runtime.plans["failed"] = plan{runs: time.Second}, plan{runs: time.Second, code: 1}
				done := named("done", func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure })
				failed := named("failed", func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever })
				runs := named("runs")
				for _, pod := range []*corev1.Pod{done, failed, runs} {
					r.create(pod)
				}
				r.stats(runs, 0, 1<<20)
				r.after(time.Minute)
				r.runtime.intercept(func(_ context.Context, call string) error {
					if strings.HasPrefix(call, "RemoveContainer") {
						time.Sleep(takes)
					}
					return nil
				})
				full.Store(true)
				r.after(time.Minute)
				r.runtime.intercept(nil)
				for range 2 {
					r.wantState(runs, "Running runs=ready")
					r.wantState(done, "Succeeded done=Completed/0")
					r.wantState(failed, "Failed failed=Error/1")
					r.restart(time.Minute)
					r.after(time.Minute)
				}
				if r.runtime.newest("done") != nil || r.runtime.newest("failed") != nil {
					t.Error("containers that have ended are still there")
				}
				for _, pod := range []*corev1.Pod{done, failed, runs} {
					r.delete(pod, 30)
				}
				r.after(time.Second)
				r.wantGone(done)
			})
		})
	}
}

// A pod that ends by itself while room is made, or while it is measured what pods use, has not failed.
func TestPodsThatEndMeanwhileAreNotEvicted(t *testing.T) {
	for name, test := range map[string]struct {
		signal eviction.Signal
		runs   time.Duration
	}{
		"while room is made":      {eviction.NodeFsAvailable, 20 * time.Second},
		"while pods are measured": {eviction.MemoryAvailable, 10500 * time.Millisecond}, // which is seen a moment later
	} {
		t.Run(name, func(t *testing.T) {
			var short atomic.Bool
			inBubbleWith(t, func(r *rig) { r.shortOf(test.signal, short.Load) }, func(r *rig) {
				done, job, other := named("done", never), named("job", never), named("other")
				r.runtime.plans["done"], r.runtime.plans["job"] = plan{runs: time.Second}, plan{runs: test.runs}
				r.runtime.intercept(func(_ context.Context, call string) error {
					if strings.HasPrefix(call, "RemoveContainer") {
						time.Sleep(15 * time.Second)
					}
					return nil
				})
				if test.signal == eviction.MemoryAvailable {
					r.measures(other, func(diskUse, func(diskUse)) diskUse {
						<-r.Engine.ctx.Done()
						return diskUse{}
					})
				}
				for _, pod := range []*corev1.Pod{done, job, other} {
					r.create(pod)
				}
				r.stats(job, 1<<30, 1<<30)
				r.stats(other, 1<<20, 1<<20)
				r.after(9 * time.Second)
				short.Store(true)
				r.after(time.Minute)
				r.wantState(job, "Succeeded job=Completed/0")
				if s := r.status(other); s.Reason != eviction.Reason {
					t.Errorf("the pod that goes on is %s: %s", s.Phase, s.Reason)
				}
				r.runtime.intercept(nil)
			})
		})
	}
}

// A disk that is full has the images of pods that have ended removed before any pod that runs is evicted.
func TestImagesOfEndedPodsAreRemoved(t *testing.T) {
	var full atomic.Bool
	inBubbleWith(t, func(r *rig) {
		r.cfg.ImageGC = ImageGC{Usage: func(context.Context) (uint64, uint64, error) { return 100, 100, nil }, MinAge: time.Second}
		r.shortOf(eviction.NodeFsAvailable, func() bool { return full.Load() && len(r.images.gone()) == 0 })
	}, func(r *rig) {
		of := func(image string) func(*corev1.Pod) { return first(func(c *corev1.Container) { c.Image = image }) }
		done, again, runs := named("done", never, of("done:1")), named("again", of("again:1")), named("runs", of("runs:1"))
		r.runtime.plans["done"], r.runtime.plans["again"] = plan{runs: time.Second}, plan{runs: time.Second}
		for _, pod := range []*corev1.Pod{done, again, runs} {
			r.create(pod)
			r.stats(pod, 0, 1<<20)
		}
		r.after(6 * time.Minute) // the images were seen by then
		full.Store(true)
		r.after(time.Minute)
		if gone := r.images.gone(); !slices.Equal(gone, []string{"done:1"}) {
			t.Errorf("removed are %v", gone)
		}
		r.wantState(done, "Succeeded done=Completed/0")
		r.wantState(runs, "Running runs=ready")
	})
}

// Images that were there at the start count as seen then: a disk that is short soon after has them removed
// before a pod is evicted.
func TestImagesAreSeenAtTheStart(t *testing.T) {
	var full atomic.Bool
	inBubbleWith(t, func(r *rig) {
		r.cfg.ImageGC = ImageGC{Usage: func(context.Context) (uint64, uint64, error) { return 100, 100, nil }}
		r.shortOf(eviction.NodeFsAvailable, func() bool { return full.Load() && len(r.images.gone()) == 0 })
		r.images.present["unused:1"] = &runtimeapi.Image{Id: "unused:1", Size: 100}
	}, func(r *rig) {
		pod := named("a")
		r.create(pod)
		r.stats(pod, 0, 1<<20)
		r.after(3 * time.Minute)
		if gone := r.images.gone(); len(gone) != 0 {
			t.Errorf("%v are removed without need", gone)
		}
		full.Store(true)
		r.after(11 * time.Second)
		r.wantState(pod, "Running a=ready")
		if gone := r.images.gone(); !slices.Equal(gone, []string{"unused:1"}) {
			t.Errorf("removed are %v", gone)
		}
	})
}

// With images and what containers write on a disk of their own, each disk has that removed, and those pods
// evicted, that fill it.
func TestImagesOnTheirOwnDisk(t *testing.T) {
	for signal, test := range map[eviction.Signal]struct {
		victim        string
		bytes, inodes uint64 // of the layer
	}{
		eviction.NodeFsAvailable:   {"volume", 10 << 20, 1000},
		eviction.NodeFsInodesFree:  {"volume", 10 << 20, 1000},
		eviction.ImageFsAvailable:  {"layer", 1 << 10, 1},
		eviction.ImageFsInodesFree: {"layer", 1 << 10, 1},
	} {
		t.Run(string(signal), func(t *testing.T) {
			var full atomic.Bool
			inBubbleWith(t, func(r *rig) {
				r.cfg.ImageGC = ImageGC{Usage: func(context.Context) (uint64, uint64, error) { return 100, 100, nil }, MinAge: time.Second}
				r.shortOf(signal, full.Load)
				r.cfg.Eviction.ImagesApart = func(context.Context) bool { return true }
				r.images.present["unused:1"] = &runtimeapi.Image{Id: "unused:1", Size: 100}
			}, func(r *rig) {
				volume, layer := named("volume", withVolume("")), named("layer", withVolume(""))
				r.create(volume)
				r.create(layer)
				r.fill(volume, 1<<20)
				write := statsOf(r, "layer", 1, 1, 1, test.bytes)
				write.WritableLayer.InodesUsed = &runtimeapi.UInt64Value{Value: test.inodes}
				count(r, write, statsOf(r, "volume", 1, 1, 1, 0))
				r.after(6 * time.Minute) // the images were seen by then
				full.Store(true)
				r.after(10 * time.Second)
				full.Store(false)
				r.after(time.Second)
				for _, pod := range []*corev1.Pod{volume, layer} {
					if got, want := r.status(pod).Reason == eviction.Reason, pod.Name == test.victim; got != want {
						t.Errorf("pod %s is evicted: %t, want %t", pod.Name, got, want)
					}
				}
				if got, want := slices.Contains(r.images.gone(), "unused:1"), test.victim == "layer"; got != want {
					t.Errorf("the unused image is removed: %t, want %t", got, want)
				}
			})
		})
	}
}

// A runtime that leaves out containers that run does not have others evicted for that.
func TestContainersWithoutFigures(t *testing.T) {
	t.Run("none, memory", func(t *testing.T) {
		inBubbleWith(t, func(r *rig) { r.shortOf(eviction.MemoryAvailable, func() bool { return true }) }, func(r *rig) {
			a, b := named("a"), named("b")
			r.create(a)
			r.create(b)
			r.after(time.Minute)
			r.wantState(a, "Running a=ready")
			r.wantState(b, "Running b=ready")
		})
	})
	t.Run("one, disk", func(t *testing.T) {
		var full atomic.Bool
		inBubbleWith(t, func(r *rig) { r.shortOf(eviction.NodeFsAvailable, full.Load) }, func(r *rig) {
			omitted, listed := named("omitted"), named("listed")
			r.create(omitted)
			r.create(listed)
			r.stats(listed, 1<<20, 1<<20)
			r.after(time.Minute)
			full.Store(true)
			for range 60 {
				if r.after(time.Second); r.status(omitted).Reason == eviction.Reason {
					full.Store(false)
				}
			}
			if full.Load() {
				t.Error("the pod of which it is not known what it uses goes on")
			}
			r.wantState(listed, "Running listed=ready")
		})
	})
}

// A machine that runs out of process IDs has the pod evicted that has the most processes; if the runtime does
// not count them, the youngest.
func TestPIDPressure(t *testing.T) {
	for name, test := range map[string]struct {
		processes map[string]uint64
		victim    string
	}{
		"counted":     {map[string]uint64{"a": 10, "b": 1000, "c": 20}, "b"},
		"not counted": {nil, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			var short atomic.Bool
			inBubbleWith(t, func(r *rig) { r.shortOf(eviction.PIDAvailable, short.Load) }, func(r *rig) {
				var pods []*corev1.Pod
				for _, name := range []string{"a", "b", "c"} {
					pod := named(name)
					pod.CreationTimestamp.Time = time.Now()
					r.create(pod)
					r.after(time.Minute)
					pods = append(pods, pod)
				}
				r.runtime.set(func() { r.runtime.processes = map[types.UID]uint64{} })
				for _, pod := range pods {
					if n, ok := test.processes[pod.Name]; ok {
						r.runtime.set(func() { r.runtime.processes[pod.UID] = n })
					}
				}
				short.Store(true)
				r.after(10 * time.Second)
				short.Store(false)
				r.after(time.Second)
				for _, pod := range pods {
					if got, want := r.status(pod).Reason == eviction.Reason, pod.Name == test.victim; got != want {
						t.Errorf("pod %s is evicted: %t, want %t", pod.Name, got, want)
					}
				}
			})
		})
	}
}
