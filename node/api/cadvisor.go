package api

import (
	"context"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// cadvisorRoute is where Prometheus' dashboards look for the usage of pods.
const cadvisorRoute = "/metrics/cadvisor"

// handleCadvisor answers with those of cAdvisor's metrics that a summary has
// figures for; without one, with none. The images of the containers, without
// which the usual dashboards leave them out, are those of the pods.
func handleCadvisor(summary PodStatsSummaryHandlerFunc, pods PodListerFunc) http.HandlerFunc {
	meter := new(cpuMeter)
	return HandlePodMetricsResource(func(ctx context.Context) ([]*dto.MetricFamily, error) {
		if summary == nil {
			return newCadvisor(nil).families(0), nil
		}
		s, err := summary(ctx)
		if err != nil || s == nil {
			log.G(ctx).WithError(err).Debug("No metrics of containers: the provider has no summary of them")
			return newCadvisor(nil).families(1), nil
		}
		var known []*v1.Pod
		if pods != nil {
			if known, err = pods(ctx); err != nil {
				log.G(ctx).WithError(err).Debug("The metrics of containers go without their images")
			}
		}
		c := newCadvisor(known)
		c.addStats(meter.complete(s))
		return c.families(0), nil
	})
}

// cadvisor gathers metrics under cAdvisor's names.
type cadvisor struct {
	cpu, start                            *dto.MetricFamily
	workingSet, usage, rss, swap          *dto.MetricFamily
	received, receiveErrors, sent, failed *dto.MetricFamily
	containers                            map[string]v1.ContainerStatus // by namespace/pod/container
}

func newCadvisor(pods []*v1.Pod) *cadvisor {
	const counter, gauge = dto.MetricType_COUNTER, dto.MetricType_GAUGE
	c := &cadvisor{
		cpu:           family("container_cpu_usage_seconds_total", counter, "Cumulative cpu time consumed in seconds."),
		start:         family("container_start_time_seconds", gauge, "Start time of the container since unix epoch in seconds."),
		workingSet:    family("container_memory_working_set_bytes", gauge, "Current working set in bytes."),
		usage:         family("container_memory_usage_bytes", gauge, "Current memory usage in bytes."),
		rss:           family("container_memory_rss", gauge, "Size of RSS in bytes."),
		swap:          family("container_memory_swap", gauge, "Container swap usage in bytes."),
		received:      family("container_network_receive_bytes_total", counter, "Cumulative count of bytes received"),
		receiveErrors: family("container_network_receive_errors_total", counter, "Cumulative count of errors encountered while receiving"),
		sent:          family("container_network_transmit_bytes_total", counter, "Cumulative count of bytes transmitted"),
		failed:        family("container_network_transmit_errors_total", counter, "Cumulative count of errors encountered while transmitting"),
		containers:    map[string]v1.ContainerStatus{},
	}
	for _, pod := range pods {
		if pod != nil {
			c.addPod(pod)
		}
	}
	return c
}

// addPod records the images and IDs of the pod's containers.
func (c *cadvisor) addPod(pod *v1.Pod) {
	key := pod.Namespace + "/" + pod.Name + "/"
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			c.containers[key+container.Name] = v1.ContainerStatus{Image: container.Image}
		}
	}
	for _, statuses := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, status := range statuses {
			if status.Image == "" {
				status.Image = c.containers[key+status.Name].Image
			}
			c.containers[key+status.Name] = status
		}
	}
}

// addStats adds the figures of the summary. The label id is shaped like the cgroup that
// there would be, since the node is known by its id /.
func (c *cadvisor) addStats(summary *stats.Summary) {
	c.add(summary.Node.CPU, summary.Node.Memory, summary.Node.Swap, cadvisorLabels("", "/", "", "", "", ""))
	for _, pod := range summary.Pods {
		ref := pod.PodRef
		id := "/kubepods/pod" + ref.UID
		labels := cadvisorLabels("", id, "", "", ref.Namespace, ref.Name)
		c.add(pod.CPU, pod.Memory, pod.Swap, labels)
		c.addNetwork(pod.Network, id, ref)
		for _, container := range pod.Containers {
			status := c.containers[ref.Namespace+"/"+ref.Name+"/"+container.Name]
			_, runtimeID, _ := strings.Cut(status.ContainerID, "://")
			labels := cadvisorLabels(container.Name, id+"/"+container.Name, status.Image, runtimeID, ref.Namespace, ref.Name)
			c.add(container.CPU, container.Memory, container.Swap, labels)
			if !container.StartTime.IsZero() {
				add(c.start, seconds(container.StartTime.UnixNano()), metav1.Time{}, labels...)
			}
		}
	}
}

func cadvisorLabels(container, id, image, name, namespace, pod string) []string {
	return []string{"container", container, "id", id, "image", image, "name", name, "namespace", namespace, "pod", pod}
}

func (c *cadvisor) add(cpu *stats.CPUStats, memory *stats.MemoryStats, swap *stats.SwapStats, labels []string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		all := append(labels[:2:2], "cpu", "total")
		add(c.cpu, seconds(int64(*cpu.UsageCoreNanoSeconds)), cpu.Time, append(all, labels[2:]...)...)
	}
	if memory != nil {
		addBytes(c.workingSet, memory.WorkingSetBytes, memory.Time, labels)
		addBytes(c.usage, memory.UsageBytes, memory.Time, labels)
		addBytes(c.rss, memory.RSSBytes, memory.Time, labels)
	}
	if swap != nil {
		addBytes(c.swap, swap.SwapUsageBytes, swap.Time, labels)
	}
}

func (c *cadvisor) addNetwork(network *stats.NetworkStats, id string, ref stats.PodReference) {
	if network == nil {
		return
	}
	interfaces := network.Interfaces
	if len(interfaces) == 0 {
		interfaces = []stats.InterfaceStats{network.InterfaceStats}
	}
	for _, i := range interfaces {
		labels := []string{"container", "", "id", id, "image", "", "interface", i.Name, "name", "", "namespace", ref.Namespace, "pod", ref.Name}
		addBytes(c.received, i.RxBytes, network.Time, labels)
		addBytes(c.receiveErrors, i.RxErrors, network.Time, labels)
		addBytes(c.sent, i.TxBytes, network.Time, labels)
		addBytes(c.failed, i.TxErrors, network.Time, labels)
	}
}

func addBytes(f *dto.MetricFamily, value *uint64, at metav1.Time, labels []string) {
	if value != nil {
		add(f, float64(*value), at, labels...)
	}
}

// families are what was gathered, and whether that failed.
func (c *cadvisor) families(scrapeError float64) []*dto.MetricFamily {
	e := family("container_scrape_error", dto.MetricType_GAUGE, "1 if there was an error while getting container metrics, 0 otherwise")
	add(e, scrapeError, metav1.Time{})
	return []*dto.MetricFamily{c.cpu, c.rss, c.swap, c.usage, c.workingSet, c.receiveErrors, c.received, c.failed, c.sent, e, c.start}
}
