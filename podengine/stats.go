package podengine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

// GetStatsSummary returns what the pods of this node use, as the runtime counts
// it, and as their storage was last measured, within about a minute. What the node uses
// of CPU and memory is the sum of it, where nobody adds better figures.
func (e *Engine) GetStatsSummary(ctx context.Context) (*statsv1alpha1.Summary, error) {
	listed, err := e.cfg.Runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("the runtime does not say what containers use: %w", err)
	}
	byPod := newestByPod(listed)
	summary := &statsv1alpha1.Summary{Node: statsv1alpha1.NodeStats{NodeName: e.cfg.Node.Name, StartTime: metav1.NewTime(e.started)}}
	pods, err := e.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	fs := e.fileSystems(ctx)
	summary.Node.Fs, summary.Node.Runtime, summary.Node.Rlimit = fs.node, fs.runtime, fs.processes
	for _, pod := range pods {
		if len(byPod[pod.UID]) == 0 {
			continue
		}
		s := podStats(pod, byPod[pod.UID])
		fs.addCapacity(&s)
		if disk, ok := e.disk.get(pod.UID); ok {
			fs.addDiskUse(&s, pod, disk)
		}
		s.Containers = slices.DeleteFunc(s.Containers, func(c statsv1alpha1.ContainerStats) bool { return !runs(pod, c.Name) })
		summary.Pods = append(summary.Pods, s)
	}
	return summary, nil
}

// runs reports whether a container of a pod is running. A runtime may list others, too, whose
// writable layers count, but which use nothing else.
func runs(pod *corev1.Pod, name string) bool {
	for c := range podstatus.Containers(&pod.Status) {
		if c.Name == name {
			return c.State.Running != nil
		}
	}
	return false
}

// newestByPod are the figures of the newest attempt of each container, by
// pod: a runtime may list some that have ended.
func newestByPod(listed []*runtimeapi.ContainerStats) map[types.UID][]*runtimeapi.ContainerStats {
	byPod := map[types.UID][]*runtimeapi.ContainerStats{}
	for _, s := range listed {
		labels := s.GetAttributes().GetLabels()
		uid := types.UID(kubelettypes.GetPodUID(labels))
		same := func(other *runtimeapi.ContainerStats) bool {
			return kubelettypes.GetContainerName(other.GetAttributes().GetLabels()) == kubelettypes.GetContainerName(labels)
		}
		switch i := slices.IndexFunc(byPod[uid], same); {
		case i < 0:
			byPod[uid] = append(byPod[uid], s)
		case s.GetAttributes().GetMetadata().GetAttempt() > byPod[uid][i].GetAttributes().GetMetadata().GetAttempt():
			byPod[uid][i] = s
		}
	}
	return byPod
}

func podStats(pod *corev1.Pod, containers []*runtimeapi.ContainerStats) statsv1alpha1.PodStats {
	s := statsv1alpha1.PodStats{PodRef: statsv1alpha1.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
	if pod.Status.StartTime != nil {
		s.StartTime = *pod.Status.StartTime
	}
	for _, c := range containers {
		s.Containers = append(s.Containers, containerStats(pod, c))
	}
	s.Swap = sumSwap(s.Containers)
	return s
}

// sumSwap is the swap of a pod, of which the CRI has no figure. It has a limit if all that
// have swap do.
func sumSwap(containers []statsv1alpha1.ContainerStats) *statsv1alpha1.SwapStats {
	var sum *statsv1alpha1.SwapStats
	for i := range containers {
		s := containers[i].Swap
		switch {
		case s == nil:
		case sum == nil:
			sum = ptr.To(*s)
		default:
			sum.SwapUsageBytes, sum.SwapAvailableBytes = plus(sum.SwapUsageBytes, s.SwapUsageBytes), plus(sum.SwapAvailableBytes, s.SwapAvailableBytes)
		}
	}
	return sum
}

// plus is the sum of two figures, if both are known.
func plus(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	return ptr.To(*a + *b)
}

func containerStats(pod *corev1.Pod, from *runtimeapi.ContainerStats) statsv1alpha1.ContainerStats {
	name := kubelettypes.GetContainerName(from.GetAttributes().GetLabels())
	s := statsv1alpha1.ContainerStats{Name: name}
	for c := range podstatus.Containers(&pod.Status) {
		if c.Name == name && c.State.Running != nil {
			s.StartTime = c.State.Running.StartedAt
		}
	}
	if cpu := from.Cpu; cpu != nil {
		s.CPU = &statsv1alpha1.CPUStats{
			Time:                 metav1.NewTime(time.Unix(0, cpu.Timestamp)),
			UsageNanoCores:       value(cpu.UsageNanoCores),
			UsageCoreNanoSeconds: value(cpu.UsageCoreNanoSeconds),
			PSI:                  psi(cpu.Psi),
		}
	}
	if memory := from.Memory; memory != nil {
		s.Memory = &statsv1alpha1.MemoryStats{
			Time:            metav1.NewTime(time.Unix(0, memory.Timestamp)),
			AvailableBytes:  value(memory.AvailableBytes),
			UsageBytes:      value(memory.UsageBytes),
			WorkingSetBytes: value(memory.WorkingSetBytes),
			RSSBytes:        value(memory.RssBytes),
			PageFaults:      value(memory.PageFaults),
			MajorPageFaults: value(memory.MajorPageFaults),
			PSI:             psi(memory.Psi),
		}
	}
	if swap := from.Swap; swap != nil {
		s.Swap = &statsv1alpha1.SwapStats{
			Time:               metav1.NewTime(time.Unix(0, swap.Timestamp)),
			SwapAvailableBytes: value(swap.SwapAvailableBytes),
			SwapUsageBytes:     value(swap.SwapUsageBytes),
		}
	}
	if io := from.Io; io != nil {
		s.IO = &statsv1alpha1.IOStats{Time: metav1.NewTime(time.Unix(0, io.Timestamp)), PSI: psi(io.Psi)}
	}
	if layer := from.WritableLayer; layer != nil {
		s.Rootfs = &statsv1alpha1.FsStats{
			Time:       metav1.NewTime(time.Unix(0, layer.Timestamp)),
			UsedBytes:  value(layer.UsedBytes),
			InodesUsed: value(layer.InodesUsed),
		}
	}
	return s
}

// psi is how long processes have waited for a resource.
func psi(from *runtimeapi.PsiStats) *statsv1alpha1.PSIStats {
	if from == nil {
		return nil
	}
	data := func(d *runtimeapi.PsiData) statsv1alpha1.PSIData {
		return statsv1alpha1.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(), Avg300: d.GetAvg300()}
	}
	return &statsv1alpha1.PSIStats{Full: data(from.Full), Some: data(from.Some)}
}

func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return ptr.To(v.Value)
}

// Ping reports whether the runtime and its network are ready.
func (e *Engine) Ping(ctx context.Context) error {
	answer, err := e.cfg.Runtime.Status(ctx, false)
	if err != nil {
		return fmt.Errorf("the container runtime does not answer: %w", err)
	}
	for _, c := range answer.GetStatus().GetConditions() {
		if (c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady) && !c.Status {
			return fmt.Errorf("the container runtime is not ready: %s: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return nil
}
