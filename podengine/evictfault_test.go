package podengine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// A pod whose eviction could not be written, on the full disk that it is evicted
// from, does not run again after a restart: its replacement runs elsewhere.
func TestAnEvictionThatCannotBeWrittenOutlastsARestart(t *testing.T) {
	for name, there := range map[string]bool{"room again before the restart": false, "room for the status only": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("a", withVolume("1Mi"))
				r.create(pod)
				blocked := r.checkpointFile(pod.UID) + unready
				if err := os.Mkdir(blocked, 0o700); err != nil { // as if the disk was full
					t.Fatal(err)
				}
				r.fill(pod, 2<<20)
				r.after(15 * time.Second)
				if s := r.status(pod); s.Phase != corev1.PodFailed || s.Reason != "Evicted" {
					t.Errorf("the pod is %s: %s", s.Phase, s.Reason)
				}
				if !there {
					if err := os.Remove(blocked); err != nil {
						t.Fatal(err)
					}
					r.after(2 * lastRetry)
					if err := os.Remove(r.statusPath(pod)); err != nil {
						t.Fatal(err)
					}
				}
				r.runtime.did()
				r.restart(time.Minute)
				r.after(10 * time.Minute)
				if s := r.status(pod); s.Phase != corev1.PodFailed || s.Reason != "Evicted" {
					t.Errorf("after the restart the pod is %s: %s", s.Phase, s.Reason)
				}
				r.wantCalls()
				if err := os.RemoveAll(blocked); err != nil {
					t.Fatal(err)
				}
				r.delete(pod, 30)
				r.after(time.Minute)
				r.wantGone(pod)
			})
		})
	}
}

// While a pod that was evicted ends, which takes long, no other is evicted for the
// same want: its end may be enough. After half a minute the next one is.
func TestOneEvictionAtATime(t *testing.T) {
	var available atomic.Int64
	available.Store(1 << 30)
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction = Eviction{
			Thresholds: eviction.Defaults(),
			Levels: func(context.Context) (eviction.Levels, error) {
				return eviction.Levels{eviction.MemoryAvailable: {Available: available.Load(), Capacity: 1 << 32}}, nil
			},
		}
	}, func(r *rig) {
		pods := map[string]*corev1.Pod{}
		r.runtime.plans["b"] = plan{lingers: 24 * time.Hour}
		for i, name := range []string{"a", "b"} {
			pod := makePod(name)
			pod.Name = name
			pods[name] = pod
			r.create(pod)
			r.stats(pod, uint64(i+1)<<20, 0)
		}
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if call == "StopContainer b 2" { // and not even then
				<-ctx.Done()
			}
			return nil
		})
		available.Store(1 << 20)
		r.after(30 * time.Second)
		if s := r.events.count("Warning Evicted: The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. Container b was using 2Mi, request is 0, has larger consumption of memory. "); s != 1 {
			t.Errorf("events are %v", r.events.drain())
		}
		r.wantState(pods["a"], "Running a=ready")
		r.after(20 * time.Second)
		if s := r.status(pods["a"]); s.Reason != "Evicted" {
			t.Errorf("after a while the other one is %s: %s", s.Phase, s.Reason)
		}
		r.runtime.intercept(nil)
	})
}

// Pods whose storage takes long to measure hold up neither the conditions of the node nor evictions.
func TestSlowVolumesDoNotHoldUpEvictions(t *testing.T) {
	var available atomic.Int64
	available.Store(1 << 30)
	var held atomic.Bool
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction = Eviction{
			Thresholds: eviction.Defaults(),
			Levels: func(context.Context) (eviction.Levels, error) {
				return eviction.Levels{eviction.MemoryAvailable: {Available: available.Load(), Capacity: 1 << 32}}, nil
			},
			Report: func(now []corev1.NodeConditionType) { held.Store(len(now) > 0) },
		}
	}, func(r *rig) {
		for i := range 20 {
			pod := makePod("a", withVolume("1Mi"))
			pod.Name = "slow-" + strconv.Itoa(i)
			pod.UID = types.UID(pod.Name)
			r.measures(pod, func(diskUse, func(diskUse)) diskUse {
				<-r.Engine.ctx.Done() // as with files without end
				return diskUse{}
			})
			r.create(pod)
		}
		large, full := makePod("b"), makePod("c", withVolume("1Mi"))
		large.Name, full.Name = "large", "full"
		r.create(large)
		r.create(full)
		r.stats(large, 1<<20, 0)
		r.after(11 * time.Second) // during the first round
		available.Store(1 << 20)
		r.after(10 * time.Second)
		if !held.Load() {
			t.Error("there is no memory pressure")
		}
		r.after(5 * time.Second)
		if s := r.status(large); s.Reason != "Evicted" {
			t.Errorf("the largest pod is %s: %s", s.Phase, s.Reason)
		}
		available.Store(1 << 30)
		r.fill(full, 2<<20)
		r.after(25 * time.Second)
		if s := r.status(full); s.Reason != "Evicted" {
			t.Errorf("the pod beyond its limit is %s: %s", s.Phase, s.Reason)
		}
	})
}

// A pod whose storage was never measured, since it has very many files, has no other evicted in its
// place from a full disk: that waits, and then it goes first.
func TestUnmeasuredPodsHaveNoOtherEvicted(t *testing.T) {
	for name, signal := range map[string]eviction.Signal{"bytes": eviction.NodeFsAvailable, "inodes": eviction.NodeFsInodesFree} {
		for what, ends := range map[string]bool{"measured in time": true, "not measured in time": false} {
			t.Run(name+", "+what, func(t *testing.T) {
				var full atomic.Bool
				inBubbleWith(t, func(r *rig) {
					r.cfg.Eviction = Eviction{Thresholds: eviction.Defaults(), Levels: func(context.Context) (eviction.Levels, error) {
						level := eviction.Level{Available: 50, Capacity: 100}
						if full.Load() {
							level.Available = 1
						}
						return eviction.Levels{signal: level}, nil
					}}
				}, func(r *rig) {
					many, small := makePod("a", withVolume("")), makePod("b", withVolume(""))
					many.Name, small.Name = "many", "small"
					r.measures(many, func(diskUse, func(diskUse)) diskUse {
						if ends {
							time.Sleep(25 * time.Second)
						} else {
							<-r.Engine.ctx.Done()
						}
						return diskUse{volumes: map[string]volume.Used{"data": {Bytes: 1 << 30, Inodes: 1 << 20}}}
					})
					r.create(many)
					r.create(small)
					r.stats(many, 0, 0)
					r.stats(small, 0, 0)
					r.fill(small, 1<<20)
					full.Store(true)
					r.after(15 * time.Second)
					r.wantState(many, "Running a=ready")
					r.wantState(small, "Running b=ready")
					for range 30 {
						if r.after(time.Second); r.status(many).Reason == eviction.Reason {
							full.Store(false) // its end has made room
						}
					}
					if s := r.status(many); s.Reason != eviction.Reason {
						t.Errorf("the pod of very many files is %s: %s", s.Phase, s.Reason)
					}
					r.wantState(small, "Running b=ready")
				})
			})
		}
	}
}

// measures has a measurement of a pod's storage under way.
func (r *rig) measures(pod *corev1.Pod, measure func(last diskUse, soFar func(diskUse)) diskUse) {
	r.disk.of(pod.UID).Start(0, r.running.Go, measure)
}

// A pod of so many files that they are more than it may have is evicted before all were counted.
func TestLimitsHoldBeforeAllIsCounted(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", withVolume("1Mi"))
		r.measures(pod, func(_ diskUse, soFar func(diskUse)) diskUse {
			time.Sleep(15 * time.Second) // until there are files
			use := r.measureDisk(r.Engine.ctx, pod, diskUse{}, soFar)
			<-r.Engine.ctx.Done() // as with many more
			return use
		})
		r.create(pod)
		dir := filepath.Join(r.podDir(pod.UID), "volumes/kubernetes.io~empty-dir/data")
		for i := range 1100 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, 2000), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.after(14 * time.Second)
		r.wantState(pod, "Running a=ready")
		r.after(15 * time.Second)
		if s := r.status(pod); s.Reason != "Evicted" {
			t.Errorf("the pod is %s: %s", s.Phase, s.Reason)
		}
	})
}

// What can be measured in part only does not hide what a pod uses.
func TestPartsThatAreMeasuredDoNotHideTheRest(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", withVolume("1Gi"))
		r.create(pod)
		r.fill(pod, 2<<20)
		whole := r.measureDisk(r.ctx, pod, diskUse{}, func(diskUse) {})
		ended, cancel := context.WithCancel(r.ctx)
		cancel()
		if part := r.measureDisk(ended, pod, whole, func(diskUse) {}); part.volumes["data"] != whole.volumes["data"] || part.volumes["data"].Bytes < 2<<20 || !part.partial || whole.partial {
			t.Errorf("the volume has %v, and in part %v", whole.volumes["data"], part.volumes["data"])
		}
		if u := usageOf(pod, diskUse{partial: true}, true, nil); !u.Unmeasured {
			t.Error("what was measured in part only passes as measured")
		}
	})
}

// Limits of local storage hold also while it is not known how much the machine has.
func TestStorageLimitsHoldWithoutLevels(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction = Eviction{
			Thresholds: eviction.Defaults(),
			Levels:     func(context.Context) (eviction.Levels, error) { return nil, errors.New("no answer") },
		}
	}, func(r *rig) {
		pod := makePod("a", withVolume("1Mi"))
		r.create(pod)
		r.fill(pod, 2<<20)
		r.after(15 * time.Second)
		if s := r.status(pod); s.Reason != "Evicted" {
			t.Errorf("the pod is %s: %s", s.Phase, s.Reason)
		}
	})
}

// What a container writes into /etc/hosts counts as the pod's local storage.
func TestHostsFileCountsAsLocalStorage(t *testing.T) {
	inBubble(t, func(r *rig) {
		pod := makePod("a", first(func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
		}))
		r.create(pod)
		if err := os.WriteFile(filepath.Join(r.podDir(pod.UID), "etc-hosts"), make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		r.after(15 * time.Second)
		if s := r.status(pod); s.Reason != "Evicted" {
			t.Errorf("the pod is %s: %s", s.Phase, s.Reason)
		}
	})
}

// A container that makes its /etc/hosts larger than memory is started again, with a whole one.
func TestHugeHostsFileIsReplaced(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{runs: 5 * time.Second, code: 1}
		pod := makePod("a")
		r.create(pod)
		hosts := filepath.Join(r.podDir(pod.UID), "etc-hosts")
		want, err := os.ReadFile(hosts)
		if err != nil || len(want) == 0 {
			t.Fatalf("the file is %q: %v", want, err)
		}
		if err := os.Truncate(hosts, 1<<40); err != nil {
			t.Fatal(err)
		}
		r.after(30 * time.Second)
		if s := r.status(pod).ContainerStatuses[0]; s.RestartCount == 0 {
			t.Errorf("the container was not started again: %v", s.State)
		}
		if info, err := os.Stat(hosts); err != nil || info.Size() != int64(len(want)) {
			t.Fatalf("the file is not as long as before: %v", err)
		}
		if got, err := os.ReadFile(hosts); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the file is %q, want %q: %v", got, want, err)
		}
	})
}

// A disk that runs out of inodes has the pod evicted that has the most files.
func TestInodePressure(t *testing.T) {
	var full atomic.Bool
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction = Eviction{Thresholds: eviction.Defaults(), Levels: func(context.Context) (eviction.Levels, error) {
			level := eviction.Level{Available: 50, Capacity: 100}
			if full.Load() {
				level.Available = 1
			}
			return eviction.Levels{eviction.NodeFsInodesFree: level}, nil
		}}
	}, func(r *rig) {
		large, many := makePod("a", withVolume("")), makePod("b", withVolume(""))
		large.Name, many.Name = "large", "many"
		r.create(large)
		r.create(many)
		r.stats(large, 0, 0)
		r.stats(many, 0, 0)
		r.fill(large, 1<<20)
		for i := range 100 {
			file := filepath.Join(r.podDir(many.UID), "volumes/kubernetes.io~empty-dir/data", strconv.Itoa(i))
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		full.Store(true)
		r.after(15 * time.Second)
		full.Store(false)
		if s := r.status(many); s.Reason != "Evicted" {
			t.Errorf("the pod with the most files is %s: %s", s.Phase, s.Reason)
		}
		r.wantState(large, "Running a=ready")
	})
}

// A pod that was evicted gives back what its containers have written, which only the
// runtime can remove, before another one is evicted for the same want. How they ended,
// and what they logged, is kept.
func TestEvictedPodsGiveBackWhatTheirContainersHaveWritten(t *testing.T) {
	var full atomic.Bool
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction = Eviction{Thresholds: eviction.Defaults(), Levels: func(context.Context) (eviction.Levels, error) {
			level := eviction.Level{Available: 50, Capacity: 100}
			if full.Load() && r.runtime.newest("a") != nil {
				level.Available = 1
			}
			return eviction.Levels{eviction.NodeFsAvailable: level}, nil
		}}
	}, func(r *rig) {
		large, small := makePod("a"), makePod("b")
		large.Name, small.Name = "large", "small"
		r.create(large)
		r.create(small)
		r.stats(large, 0, 2<<20)
		r.stats(small, 0, 1<<20)
		r.runtime.mu.Lock()
		for _, c := range r.runtime.containers {
			c.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 7}}
		}
		r.runtime.mu.Unlock()
		full.Store(true)
		r.after(time.Minute)
		r.wantState(small, "Running b=ready")
		for range 2 {
			if s := r.status(large).ContainerStatuses[0]; s.User == nil || s.User.Linux.UID != 7 {
				t.Errorf("its container ran as %v", s.User)
			}
			if s := r.status(large); s.Reason != "Evicted" {
				t.Errorf("the large pod is %s: %s", s.Phase, s.Reason)
			}
			r.wantState(large, "Failed a=Completed/0")
			if _, err := os.Stat(r.logFile(large, "a", 0)); err != nil {
				t.Errorf("the log: %v", err)
			}
			r.restart(time.Minute)
			r.after(time.Minute)
		}
		r.delete(large, 30)
		r.delete(small, 30)
		r.after(time.Minute)
		r.wantGone(large)
	})
}

// A pod that was evicted can be deleted while its containers are being removed, which may take long.
func TestEvictedPodIsDeletedWhileItsContainersAreRemoved(t *testing.T) {
	var full atomic.Bool
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction = Eviction{Thresholds: eviction.Defaults(), Levels: func(context.Context) (eviction.Levels, error) {
			level := eviction.Level{Available: 50, Capacity: 100}
			if full.Load() {
				level.Available = 1
			}
			return eviction.Levels{eviction.NodeFsAvailable: level}, nil
		}}
	}, func(r *rig) {
		pod := makePod("a")
		r.create(pod)
		var removing atomic.Bool
		r.runtime.mu.Lock()
		r.runtime.before = func(_ context.Context, call string) error {
			if strings.HasPrefix(call, "RemoveContainer") && removing.CompareAndSwap(false, true) {
				time.Sleep(time.Hour)
			}
			return nil
		}
		r.runtime.mu.Unlock()
		full.Store(true)
		r.after(time.Minute)
		if !removing.Load() {
			t.Fatal("its containers are not removed")
		}
		began := time.Now()
		r.delete(pod, 30)
		if took := time.Since(began); took > 0 {
			t.Errorf("the deletion was taken after %v", took)
		}
		full.Store(false)
		r.after(2 * time.Hour)
		r.wantGone(pod)
	})
}

// What is not known of a pod for a moment only, as of a container that was started again, has it not evicted in place of one
// that uses more, and holds up no evictions, also if it is another pod each time.
func TestMomentsWithoutAMeasurement(t *testing.T) {
	var full atomic.Bool
	pressed := func(r *rig) {
		r.cfg.Eviction = Eviction{Thresholds: eviction.Defaults(), Levels: func(context.Context) (eviction.Levels, error) {
			level := eviction.Level{Available: 50, Capacity: 100}
			if full.Load() {
				level.Available = 1
			}
			return eviction.Levels{eviction.NodeFsAvailable: level}, nil
		}}
	}
	stats := func(r *rig, without string) {
		var listed []*runtimeapi.ContainerStats
		for name, used := range map[string]uint64{"a": 1 << 30, "b": 1 << 10, "c": 1 << 10} {
			if r.runtime.newest(name) == nil { // its pod was evicted
				continue
			}
			s := statsOf(r, name, 1, 1, 1, used)
			if name == without {
				s.WritableLayer = nil
			}
			listed = append(listed, s)
		}
		count(r, listed...)
	}
	begin := func(r *rig) (hog *corev1.Pod, others []*corev1.Pod) {
		full.Store(false)
		var pods []*corev1.Pod
		for _, name := range []string{"a", "b", "c"} {
			pod := makePod(name)
			pod.Name = name
			r.create(pod)
			pods = append(pods, pod)
		}
		stats(r, "")
		r.after(time.Minute) // all were measured
		return pods[0], pods[1:]
	}
	check := func(r *rig, hog *corev1.Pod, others []*corev1.Pod) {
		r.t.Helper()
		if s := r.status(hog); s.Reason != eviction.Reason {
			r.t.Errorf("the pod that uses most is %s", s.Phase)
		}
		r.wantState(others[0], "Running b=ready")
		r.wantState(others[1], "Running c=ready")
	}
	t.Run("once more after an hour", func(t *testing.T) {
		inBubbleWith(t, pressed, func(r *rig) {
			hog, others := begin(r)
			stats(r, "b")
			full.Store(true)
			r.after(11 * time.Second)
			full.Store(false)
			stats(r, "")
			r.after(time.Hour)
			stats(r, "b")
			full.Store(true)
			r.after(11 * time.Second)
			stats(r, "")
			for range 20 {
				if r.after(time.Second); r.status(hog).Reason == eviction.Reason {
					full.Store(false)
				}
			}
			check(r, hog, others)
		})
	})
	t.Run("another each time", func(t *testing.T) {
		inBubbleWith(t, pressed, func(r *rig) {
			hog, others := begin(r)
			full.Store(true)
			for i := range 40 {
				stats(r, []string{"b", "c"}[i/10%2])
				if r.after(time.Second); r.status(hog).Reason == eviction.Reason {
					full.Store(false)
				}
			}
			check(r, hog, others)
		})
	})
}
