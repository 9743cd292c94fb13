package api

import (
	"context"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// ResourceMetricsFromSummary makes the kubelet's resource metrics from a
// Summary, for a provider that has no metrics of its own: names, types, help
// texts and label order are the kubelet's, sorted by name and labels. Usage of
// a pod that the Summary lacks is the sum of its containers', that of the node
// the sum of its pods'; a container without a start time has its pod's, and none if
// it has neither CPU nor memory. What there is no figure for is left out. A nil Summary makes resource_scrape_error 1.
//
//	func (p *provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
//		summary, err := p.GetStatsSummary(ctx)
//		return api.ResourceMetricsFromSummary(summary), err
//	}
//
// A sum falls when a pod goes, which metrics-server takes for an error once.
// PodHandler, given a PodHandlerConfig without GetMetricsResource, remembers
// what has gone and so does better.
func ResourceMetricsFromSummary(summary *stats.Summary) []*dto.MetricFamily {
	return new(cpuMeter).metrics(summary)
}

// resourceMetrics is own, or where that is nil made from the summary. If that
// fails, the metrics say so, as the kubelet's do.
func resourceMetrics(own PodMetricsResourceHandlerFunc, summary PodStatsSummaryHandlerFunc) PodMetricsResourceHandlerFunc {
	if own != nil || summary == nil {
		return own
	}
	meter := new(cpuMeter)
	return func(ctx context.Context) ([]*dto.MetricFamily, error) {
		s, err := summary(ctx)
		if err != nil {
			log.G(ctx).WithError(err).Error("No resource metrics: the provider has no summary of them")
			s = nil
		}
		return meter.metrics(s), nil
	}
}

// metrics are those of the summary, with what is missing summed up.
func (m *cpuMeter) metrics(summary *stats.Summary) []*dto.MetricFamily {
	containerCPU := family("container_cpu_usage_seconds_total", dto.MetricType_COUNTER, "[STABLE] Cumulative cpu time consumed by the container in core-seconds")
	containerMemory := family("container_memory_working_set_bytes", dto.MetricType_GAUGE, "[STABLE] Current working set of the container in bytes")
	containerStart := family("container_start_time_seconds", dto.MetricType_GAUGE, "[STABLE] Start time of the container since unix epoch in seconds")
	containerSwapLimit := family("container_swap_limit_bytes", dto.MetricType_GAUGE, "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems")
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
		summary = m.complete(summary)
		addUsage(nodeCPU, nodeMemory, nodeSwap, summary.Node.CPU, summary.Node.Memory, summary.Node.Swap)
		for _, pod := range summary.Pods {
			name, namespace := pod.PodRef.Name, pod.PodRef.Namespace
			addUsage(podCPU, podMemory, podSwap, pod.CPU, pod.Memory, pod.Swap, "namespace", namespace, "pod", name)
			for _, c := range pod.Containers {
				labels := []string{"container", c.Name, "namespace", namespace, "pod", name}
				addUsage(containerCPU, containerMemory, containerSwap, c.CPU, c.Memory, c.Swap, labels...)
				addSwapLimit(containerSwapLimit, c.Swap, labels...)
				start := c.StartTime
				if start.IsZero() {
					start = pod.StartTime
				}
				if hasUsage(&c) && !start.IsZero() {
					add(containerStart, seconds(start.UnixNano()), metav1.Time{}, labels...)
				}
			}
		}
	}
	add(scrapeError, failed, metav1.Time{})

	var families []*dto.MetricFamily
	for _, f := range []*dto.MetricFamily{
		containerCPU, containerMemory, containerStart, containerSwapLimit, containerSwap,
		nodeCPU, nodeMemory, nodeSwap, podCPU, podMemory, podSwap, scrapeError,
	} {
		if len(f.Metric) > 0 {
			slices.SortStableFunc(f.Metric, byLabels)
			families = append(families, f)
		}
	}
	return families
}

// byLabels compares metrics of one family.
func byLabels(a, b *dto.Metric) int {
	return slices.CompareFunc(a.Label, b.Label, func(a, b *dto.LabelPair) int {
		return strings.Compare(a.GetValue(), b.GetValue())
	})
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

// hasUsage reports whether a container has CPU or memory. metrics-server drops the whole pod of
// one that has neither and a start time, such as one that has ended.
func hasUsage(c *stats.ContainerStats) bool {
	return c.CPU != nil && c.CPU.UsageCoreNanoSeconds != nil || c.Memory != nil && c.Memory.WorkingSetBytes != nil
}

// addSwapLimit adds the limit, which is what is used and what is left.
func addSwapLimit(f *dto.MetricFamily, swap *stats.SwapStats, labels ...string) {
	if swap != nil && swap.SwapUsageBytes != nil && swap.SwapAvailableBytes != nil {
		add(f, float64(*swap.SwapUsageBytes+*swap.SwapAvailableBytes), swap.Time, labels...)
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
