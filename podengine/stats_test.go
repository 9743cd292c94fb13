package podengine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// statsOf are what the runtime reports of the newest attempt of a container. No
// figure of the CRI is sure to be there: without any, all are left out.
func statsOf(r *rig, name string, figures ...uint64) *runtimeapi.ContainerStats {
	c := r.runtime.newest(name)
	s := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: c.Id, Metadata: c.Metadata, Labels: c.Labels}}
	if len(figures) > 0 {
		now := time.Now().UnixNano()
		v := func(i int) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: figures[i]} }
		s.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: v(0), UsageNanoCores: v(1)}
		s.Memory = &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: v(2)}
		s.WritableLayer = &runtimeapi.FilesystemUsage{Timestamp: now, UsedBytes: v(3)}
	}
	return s
}

// count has the runtime say what containers use.
func count(r *rig, listed ...*runtimeapi.ContainerStats) {
	r.runtime.set(func() { r.runtime.stats = listed })
}

func TestStatsSummary(t *testing.T) {
	inBubble(t, func(r *rig) {
		began := time.Now()
		r.after(time.Second)
		pod := makePod("a b", first(func(c *corev1.Container) { c.Image = "other:1" }))
		r.create(pod)
		without := makePod("c")
		r.create(without) // which the runtime has no figures of
		foreign := statsOf(r, "c", 1, 2, 3, 4)
		foreign.Attributes.Labels = map[string]string{"io.kubernetes.pod.uid": "another", "io.kubernetes.container.name": "c"}
		count(r, statsOf(r, "a", 5e9, 5e8, 1<<20, 4096), statsOf(r, "b"), foreign)
		s, err := r.GetStatsSummary(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s.Node.NodeName != "vk" || !s.Node.StartTime.Time.Equal(began) {
			t.Errorf("the node is %+v", s.Node)
		}
		if len(s.Pods) != 1 || s.Pods[0].PodRef.UID != string(pod.UID) || s.Pods[0].PodRef.Namespace != "ns" || len(s.Pods[0].Containers) != 2 {
			t.Fatalf("pods are %+v", s.Pods)
		}
		a, b := s.Pods[0].Containers[0], s.Pods[0].Containers[1]
		if a.Name != "a" || *a.CPU.UsageCoreNanoSeconds != 5e9 || *a.CPU.UsageNanoCores != 5e8 || *a.Memory.WorkingSetBytes != 1<<20 ||
			*a.Rootfs.UsedBytes != 4096 || a.Memory.RSSBytes != nil || !a.StartTime.Time.Equal(time.Now()) {
			t.Errorf("a is %+v", a)
		}
		if b.Name != "b" || b.CPU != nil || b.Memory != nil || b.Rootfs != nil {
			t.Errorf("b, which there are no figures of, is %+v", b)
		}
	})
}

// The summary says what pods use of the node's storage, as a kubelet's does.
func TestStatsOfStorage(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.cfg.Eviction.Levels = func(context.Context) (eviction.Levels, error) {
			return eviction.Levels{
				eviction.NodeFsAvailable: {Available: 60 << 30, Capacity: 100 << 30}, eviction.NodeFsInodesFree: {Available: 900, Capacity: 1000},
				eviction.ImageFsAvailable: {Available: 20 << 30, Capacity: 50 << 30}, eviction.PIDAvailable: {Available: 32000, Capacity: 32768},
			}, nil
		}
	}, func(r *rig) {
		pod := makePod("a b", withVolume(""), func(pod *corev1.Pod) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "memory", VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
			}})
		})
		r.create(pod)
		count(r, statsOf(r, "a", 1, 1, 1, 10<<20), statsOf(r, "b", 1, 1, 1, 0))
		s, err := r.GetStatsSummary(r.ctx)
		if err != nil || s.Pods[0].EphemeralStorage != nil || s.Pods[0].Containers[0].Logs != nil {
			t.Fatalf("before it was measured: %+v, %v", s, err)
		}
		r.fill(pod, 3<<20)
		if err := writeLog(r.logFile(pod, "a", 0), 1<<20); err != nil {
			t.Fatal(err)
		}
		r.after(2 * diskUseLook)
		if s, err = r.GetStatsSummary(r.ctx); err != nil {
			t.Fatal(err)
		}
		storage, a := s.Pods[0].EphemeralStorage, s.Pods[0].Containers[0]
		if storage == nil || *storage.UsedBytes < 14<<20 || *storage.UsedBytes > 15<<20 || *storage.CapacityBytes != 100<<30 || *storage.AvailableBytes != 60<<30 || *storage.InodesUsed < 4 {
			t.Errorf("the pod's storage is %+v", storage)
		}
		if a.Logs == nil || *a.Logs.UsedBytes < 1<<20 || *a.Logs.UsedBytes > 2<<20 || *a.Logs.Inodes != 1000 || *a.Rootfs.CapacityBytes != 50<<30 || *a.Rootfs.UsedBytes != 10<<20 {
			t.Errorf("the container's are %+v and %+v", a.Logs, a.Rootfs)
		}
		volumes := s.Pods[0].VolumeStats
		if len(volumes) != 2 || volumes[0].Name != "data" || *volumes[0].UsedBytes < 3<<20 || *volumes[0].CapacityBytes != 100<<30 || volumes[1].Name != "memory" || volumes[1].CapacityBytes != nil {
			t.Errorf("volumes are %+v", volumes)
		}
		node := s.Node
		if node.Runtime == nil || *node.Runtime.ImageFs.UsedBytes != 7<<30 || *node.Runtime.ContainerFs.CapacityBytes != 50<<30 {
			t.Errorf("the runtime's are %+v", node.Runtime)
		}
		if node.Fs == nil || *node.Fs.UsedBytes != 40<<30 || *node.Fs.InodesUsed != 100 || node.Rlimit == nil || *node.Rlimit.MaxPID != 32768 || *node.Rlimit.NumOfRunningProcesses != 768 {
			t.Errorf("the node's are %+v, %+v", node.Fs, node.Rlimit)
		}
		r.delete(pod, 0)
		r.after(2 * diskUseLook)
		if _, ok := r.disk.get(pod.UID); ok {
			t.Error("the storage of a pod that is gone is remembered")
		}
	})
}

// metrics-server drops a pod with a container that has a start time and no figures: as a
// kubelet's, the summary has containers that run. What others left on the disk counts.
func TestStatsOfEndedContainers(t *testing.T) {
	inBubbleWith(t, func(r *rig) {
		r.runtime.plans["init"], r.runtime.plans["b"] = plan{runs: time.Second}, plan{runs: time.Second, code: 1}
	}, func(r *rig) {
		pod := makePod("a b", func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "image:1"}}
		})
		r.create(pod)
		r.after(2 * diskUseLook)
		ended, failing := statsOf(r, "init"), statsOf(r, "b")
		ended.WritableLayer = &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: 10 << 20}}
		count(r, ended, statsOf(r, "a", 5e9, 1, 100, 1), failing)
		s, err := r.GetStatsSummary(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 || s.Pods[0].Containers[0].Name != "a" {
			t.Fatalf("pods are %+v", s.Pods)
		}
		if storage := s.Pods[0].EphemeralStorage; storage == nil || *storage.UsedBytes < 10<<20 {
			t.Errorf("the pod's storage is %+v", storage)
		}
		for _, family := range api.ResourceMetricsFromSummary(s) {
			if strings.HasPrefix(family.GetName(), "container_") && len(family.Metric) != 1 {
				t.Errorf("%s is %v", family.GetName(), family.Metric)
			}
		}
	})
}

// What a runtime knows of swap, and of waiting for CPU, memory and disks, is in the summary. A pod's
// swap is its containers', as a kubelet's.
func TestStatsOfSwapAndPressure(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(makePod("a b c"))
		v := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
		a, b, c := statsOf(r, "a", 5e9, 1, 100, 1), statsOf(r, "b", 1, 1, 1, 1), statsOf(r, "c", 1, 1, 1, 1)
		now := time.Now()
		a.Swap = &runtimeapi.SwapUsage{Timestamp: now.UnixNano(), SwapUsageBytes: v(30), SwapAvailableBytes: v(70)}
		b.Swap = &runtimeapi.SwapUsage{Timestamp: now.UnixNano(), SwapUsageBytes: v(5)} // without a limit
		a.Cpu.Psi = &runtimeapi.PsiStats{Some: &runtimeapi.PsiData{Total: 7, Avg10: 1.5, Avg60: 2.5, Avg300: 3.5}}
		a.Memory.Psi = &runtimeapi.PsiStats{Full: &runtimeapi.PsiData{Total: 8}}
		a.Io = &runtimeapi.IoUsage{Timestamp: now.UnixNano(), Psi: &runtimeapi.PsiStats{Full: &runtimeapi.PsiData{Total: 9}}}
		count(r, a, b, c)
		s, err := r.GetStatsSummary(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		pod := s.Pods[0]
		first, last := pod.Containers[0], pod.Containers[2]
		some := statsv1alpha1.PSIData{Total: 7, Avg10: 1.5, Avg60: 2.5, Avg300: 3.5}
		if first.CPU.PSI == nil || first.CPU.PSI.Some != some || first.CPU.PSI.Full.Total != 0 || first.Memory.PSI.Full.Total != 8 || first.IO.PSI.Full.Total != 9 || !first.IO.Time.Time.Equal(now) {
			t.Errorf("a is %+v", first)
		}
		if last.Swap != nil || last.IO != nil || last.CPU.PSI != nil || last.Memory.PSI != nil {
			t.Errorf("c, of which there are no such figures, is %+v", last)
		}
		if pod.Swap == nil || *pod.Swap.SwapUsageBytes != 35 || pod.Swap.SwapAvailableBytes != nil || !pod.Swap.Time.Time.Equal(now) {
			t.Errorf("the pod's swap is %+v", pod.Swap)
		}
		got := map[string]float64{}
		for _, family := range api.ResourceMetricsFromSummary(s) {
			for _, m := range family.Metric {
				got[family.GetName()] += m.GetGauge().GetValue()
			}
		}
		if got["container_swap_usage_bytes"] != 35 || got["container_swap_limit_bytes"] != 100 || got["pod_swap_usage_bytes"] != 35 {
			t.Errorf("the metrics are %v", got)
		}
	})
}

// Of a container that was restarted only the attempt that runs counts.
func TestStatsOfAttempts(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.plans["a"] = plan{runs: 10 * time.Second, code: 1} }, func(r *rig) {
		r.create(makePod("a"))
		old := statsOf(r, "a", 7, 7, 7, 7)
		r.after(13 * time.Second)
		now := statsOf(r, "a", 5, 5, 5, 5)
		for _, listed := range [][]*runtimeapi.ContainerStats{{old, now}, {now, old}} {
			count(r, listed...)
			s, err := r.GetStatsSummary(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if c := s.Pods[0].Containers; len(c) != 1 || *c[0].CPU.UsageCoreNanoSeconds != 5 {
				t.Errorf("containers are %+v", c)
			}
		}
	})
}

func TestStatsWithoutTheRuntime(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.intercept(func(context.Context, string) error { return errors.New("not now") })
		if _, err := r.GetStatsSummary(r.ctx); err == nil || !strings.Contains(err.Error(), "not now") {
			t.Errorf("got %v", err)
		}
	})
}

// Resource metrics come from the summary: metrics-server needs these.
func TestResourceMetrics(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(makePod("a b"))
		count(r, statsOf(r, "a", 2e9, 1, 100, 1), statsOf(r, "b", 3e9, 1, 200, 1))
		s, err := r.GetStatsSummary(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range api.ResourceMetricsFromSummary(s) {
			for _, m := range family.Metric {
				got[family.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"container_cpu_usage_seconds_total": 5, "pod_cpu_usage_seconds_total": 5, "node_cpu_usage_seconds_total": 5,
			"container_memory_working_set_bytes": 300, "pod_memory_working_set_bytes": 300, "node_memory_working_set_bytes": 300,
			"resource_scrape_error": 0,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	})
}

// ImageFsInfo says what images take of their file system.
func (*fakeImages) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{UsedBytes: &runtimeapi.UInt64Value{Value: 7 << 30}}}}, nil
}
