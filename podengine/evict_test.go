package podengine

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// withVolume gives a pod an emptyDir named data.
func withVolume(sizeLimit string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		source := &corev1.EmptyDirVolumeSource{}
		if sizeLimit != "" {
			limit := resource.MustParse(sizeLimit)
			source.SizeLimit = &limit
		}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: source}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
}

// fill writes a file of so many bytes into the pod's volume.
func (r *rig) fill(pod *corev1.Pod, bytes int) {
	r.t.Helper()
	file := filepath.Join(r.podDir(pod.UID), "volumes/kubernetes.io~empty-dir/data/file")
	if err := os.WriteFile(file, make([]byte, bytes), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// stats are what the containers of a pod use.
func (r *rig) stats(pod *corev1.Pod, memory, layer uint64) {
	r.runtime.set(func() {
		r.runtime.stats = append(r.runtime.stats, &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{Labels: map[string]string{
				"io.kubernetes.pod.uid": string(pod.UID), "io.kubernetes.container.name": pod.Spec.Containers[0].Name,
			}},
			Memory:        &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: memory}},
			WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: layer}},
		})
	})
}

// A pod that uses more local storage than it may is evicted, for good, regardless of its
// restart policy, and gives back what it used.
func TestPodsThatUseTooMuchStorageAreEvicted(t *testing.T) {
	limited := first(func(c *corev1.Container) {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
	})
	for name, test := range map[string]struct {
		change  func(*corev1.Pod)
		use     func(r *rig, pod *corev1.Pod)
		message string
	}{
		"sizeLimit":           {withVolume("1Mi"), func(r *rig, pod *corev1.Pod) { r.fill(pod, 2<<20) }, `Usage of EmptyDir volume "data" exceeds the limit "1Mi". `},
		"limit, by a volume":  {func(p *corev1.Pod) { withVolume("")(p); limited(p) }, func(r *rig, pod *corev1.Pod) { r.fill(pod, 2<<20) }, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
		"limit, by the layer": {limited, func(r *rig, pod *corev1.Pod) { r.stats(pod, 0, 2<<20) }, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
		"limit, by a log": {limited, func(r *rig, pod *corev1.Pod) {
			if err := writeLog(r.logFile(pod, "a", 0), 2<<20); err != nil {
				r.t.Fatal(err)
			}
		}, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
		"limit, by a termination message": {func(p *corev1.Pod) {
			limited(p)
			p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		}, func(r *rig, pod *corev1.Pod) {
			if err := writeLog(r.terminationLog(pod, "a", 0), 2<<20); err != nil {
				r.t.Fatal(err)
			}
		}, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "},
		"less":     {withVolume("1Mi"), func(r *rig, pod *corev1.Pod) { r.fill(pod, 1<<19) }, ""},
		"no limit": {withVolume(""), func(r *rig, pod *corev1.Pod) { r.fill(pod, 2<<20) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				pod := makePod("a", test.change)
				r.create(pod)
				r.after(15 * time.Second)
				r.wantState(pod, "Running a=ready")
				r.events.drain()
				test.use(r, pod)
				r.after(15 * time.Second)
				if test.message == "" {
					r.wantState(pod, "Running a=ready")
					return
				}
				r.restart(time.Minute)
				r.after(time.Minute)
				s := r.status(pod)
				if s.Phase != corev1.PodFailed || s.Reason != "Evicted" || s.Message != test.message {
					t.Errorf("%s: %s: %s", s.Phase, s.Reason, s.Message)
				}
				if n := r.events.count("Warning Evicted: " + test.message); n != 1 {
					t.Errorf("events are %v", r.events.drain())
				}
				if _, err := os.Stat(filepath.Join(r.podDir(pod.UID), "volumes")); err == nil {
					t.Error("its volumes are left")
				}
				r.delete(pod, 30)
				r.after(time.Second)
				r.wantGone(pod)
			})
		})
	}
}

// A machine that runs out of memory evicts one pod at a time, the one that exceeds its
// request the most, takes no more pods, and says so, for five minutes more than it
// lasts.
func TestMemoryPressure(t *testing.T) {
	var available atomic.Int64
	available.Store(1 << 30)
	var held []corev1.NodeConditionType
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction = Eviction{
			Thresholds: eviction.Defaults(),
			Levels: func(context.Context) (eviction.Levels, error) {
				return eviction.Levels{eviction.MemoryAvailable: {Available: available.Load(), Capacity: 1 << 32}}, nil
			},
			Report: func(now []corev1.NodeConditionType) { held = now },
		}
	}, func(r *rig) {
		small, large, critical := makePod("a"), makePod("b"), makePod("c")
		small.Name, large.Name, critical.Name = "small", "large", "critical"
		priority := int32(2_000_000_000)
		critical.Spec.Priority = &priority
		for i, pod := range []*corev1.Pod{small, large, critical} {
			r.create(pod)
			r.stats(pod, uint64(i+1)<<20, 0)
		}
		r.after(time.Minute)
		if held != nil {
			t.Errorf("held are %v", held)
		}
		available.Store(1 << 20)
		r.after(10 * time.Second)
		available.Store(1 << 30)
		r.after(10 * time.Second)
		if s := r.status(large); s.Reason != "Evicted" || s.Message != "The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. Container b was using 2Mi, request is 0, has larger consumption of memory. " {
			t.Errorf("%s: %s", s.Reason, s.Message)
		}
		if c := condition(r.status(large), corev1.DisruptionTarget); c == nil || c.Reason != "TerminationByKubelet" {
			t.Errorf("the condition is %v", c)
		}
		r.wantState(small, "Running a=ready")
		r.wantState(critical, "Running c=ready")
		if !slices.Equal(held, []corev1.NodeConditionType{corev1.NodeMemoryPressure}) {
			t.Errorf("held are %v", held)
		}
		late, burstable := makePod("d"), makePod("e", first(func(c *corev1.Container) { c.Resources.Requests = cpu("1") }))
		late.Name, burstable.Name = "late", "burstable"
		r.create(late)
		r.create(burstable)
		r.after(time.Second)
		if s := r.status(late); s.Phase != corev1.PodFailed || s.Reason != "Evicted" || s.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("%s: %s: %s", s.Phase, s.Reason, s.Message)
		}
		r.wantState(burstable, "Running e=ready")
		r.after(6 * time.Minute)
		if len(held) != 0 {
			t.Errorf("held are %v", held)
		}
	})
}

// A disk that is full has unused images removed before any pod is evicted.
func TestDiskPressure(t *testing.T) {
	for name, images := range map[string]bool{"images make room": true, "a pod is evicted": false} {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool
			inBubbleWith(t, func(r *rig) {
				r.cfg.ImageGC = ImageGC{Usage: func(context.Context) (uint64, uint64, error) { return 100, 100, nil }, MinAge: time.Second}
				r.cfg.Eviction = Eviction{Thresholds: eviction.Defaults(), Levels: func(context.Context) (eviction.Levels, error) {
					level := eviction.Level{Available: 50, Capacity: 100}
					if full.Load() && (!images || len(r.images.gone()) == 0) {
						level.Available = 5
					}
					return eviction.Levels{eviction.NodeFsAvailable: level}, nil
				}}
				r.images.present["unused:1"] = &runtimeapi.Image{Id: "unused:1", Size: 100}
			}, func(r *rig) {
				pod := makePod("a", withVolume(""))
				r.create(pod)
				r.stats(pod, 0, 0)
				r.fill(pod, 1<<20)
				r.after(6 * time.Minute) // the images were seen by then
				full.Store(true)
				r.after(15 * time.Second)
				full.Store(false)
				r.after(15 * time.Second)
				if !slices.Contains(r.images.gone(), "unused:1") {
					t.Error("the unused image is still there")
				}
				if images {
					r.wantState(pod, "Running a=ready")
				} else if s := r.status(pod); s.Reason != "Evicted" {
					t.Errorf("the pod is %s: %s", s.Phase, s.Reason)
				}
			})
		})
	}
}
