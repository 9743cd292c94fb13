package api

import (
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ResourceMetricsFromSummary makes the kubelet's resource metrics from a
// Summary, for a provider that has no metrics of its own: names, types, help
// texts and label order are the kubelet's, sorted by name. What the Summary
// lacks is left out. A nil Summary makes resource_scrape_error 1.
//
//	func (p *provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
//		summary, err := p.GetStatsSummary(ctx)
//		return api.ResourceMetricsFromSummary(summary), err
//	}
func ResourceMetricsFromSummary(summary *stats.Summary) []*dto.MetricFamily {
	containerCPU := family("container_cpu_usage_seconds_total", dto.MetricType_COUNTER, "[STABLE] Cumulative cpu time consumed by the container in core-seconds")
	containerMemory := family("container_memory_working_set_bytes", dto.MetricType_GAUGE, "[STABLE] Current working set of the container in bytes")
	containerStart := family("container_start_time_seconds", dto.MetricType_GAUGE, "[STABLE] Start time of the container since unix epoch in seconds")
	containerSwap := family("container_swap_usage_bytes", dto.MetricType_GAUGE, "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems")
	nodeCPU := family("node_cpu_usage_seconds_total", dto.MetricType_COUNTER, "[STABLE] Cumulative cpu time consumed by the node in core-seconds")
	nodeMemory := family("node_memory_working_set_bytes", dto.MetricType_GAUGE, "[STABLE] Current working set of the node in bytes")
	nodeSwap := family("node_swap_usage_bytes", dto.MetricType_GAUGE, "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems")
	podCPU := family("pod_cpu_usage_seconds_total", dto.MetricType_COUNTER, "[STABLE] Cumulative cpu time consumed by the pod in core-seconds")
	podMemory := family("pod_memory_working_set_bytes", dto.MetricType_GAUGE, "[STABLE] Current working set of the pod in bytes")
	podSwap := family("pod_swap_usage_bytes", dto.MetricType_GAUGE, "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems")
	scrapeError := family("resource_scrape_error", dto.MetricType_GAUGE, "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise")

	failed := 1.0
	if summary != nil {
		failed = 0
		addUsage(nodeCPU, nodeMemory, nodeSwap, summary.Node.CPU, summary.Node.Memory, summary.Node.Swap)
		for _, pod := range summary.Pods {
			name, namespace := pod.PodRef.Name, pod.PodRef.Namespace
			addUsage(podCPU, podMemory, podSwap, pod.CPU, pod.Memory, pod.Swap, "namespace", namespace, "pod", name)
			for _, c := range pod.Containers {
				labels := []string{"container", c.Name, "namespace", namespace, "pod", name}
				addUsage(containerCPU, containerMemory, containerSwap, c.CPU, c.Memory, c.Swap, labels...)
				if !c.StartTime.IsZero() {
					add(containerStart, seconds(c.StartTime.UnixNano()), metav1.Time{}, labels...)
				}
			}
		}
	}
	add(scrapeError, failed, metav1.Time{})

	var families []*dto.MetricFamily
	for _, f := range []*dto.MetricFamily{
		containerCPU, containerMemory, containerStart, containerSwap,
		nodeCPU, nodeMemory, nodeSwap, podCPU, podMemory, podSwap, scrapeError,
	} {
		if len(f.Metric) > 0 {
			families = append(families, f)
		}
	}
	return families
}

func addUsage(cpuFamily, memoryFamily, swapFamily *dto.MetricFamily, cpu *stats.CPUStats, memory *stats.MemoryStats, swap *stats.SwapStats, labels ...string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		add(cpuFamily, float64(*cpu.UsageCoreNanoSeconds)/float64(time.Second), cpu.Time, labels...)
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		add(memoryFamily, float64(*memory.WorkingSetBytes), memory.Time, labels...)
	}
	if swap != nil && swap.SwapUsageBytes != nil {
		add(swapFamily, float64(*swap.SwapUsageBytes), swap.Time, labels...)
	}
}

func seconds(nanos int64) float64 { return float64(nanos) / float64(time.Second) }

func family(name string, kind dto.MetricType, help string) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
}

// add appends a metric; a zero time means no timestamp. labels are names and
// values in turn.
func add(f *dto.MetricFamily, value float64, at metav1.Time, labels ...string) {
	m := &dto.Metric{}
	for i := 0; i+1 < len(labels); i += 2 {
		m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
	}
	if f.GetType() == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	if !at.IsZero() {
		millis := at.UnixMilli()
		m.TimestampMs = &millis
	}
	f.Metric = append(f.Metric, m)
}
