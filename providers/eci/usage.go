package eci

import (
	"context"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Usage implements podgroup.Meter.
func (b *backend) Usage(ctx context.Context, units []*podgroup.Unit) ([]stats.PodStats, error) {
	var ids []string
	for _, u := range units {
		ids = append(ids, u.ID)
	}
	response := eci.CreateDescribeMultiContainerGroupMetricResponse()
	err := b.client.call(ctx, podgroup.ActionUsage, "DescribeMultiContainerGroupMetric", params{"ContainerGroupIds": jsonText(ids)}, response)
	if err != nil {
		return nil, err
	}
	last := map[string]*eci.DescribeMultiContainerGroupMetricPodStat1{}
	for _, group := range response.MonitorDatas {
		for i := range group.Records {
			if r, known := &group.Records[i], last[group.ContainerGroupId]; known == nil || r.Timestamp > known.Timestamp {
				last[group.ContainerGroupId] = r
			}
		}
	}
	all := make([]stats.PodStats, len(units))
	for i, u := range units {
		if r := last[u.ID]; r != nil {
			all[i] = podStats(r)
		}
	}
	return all, nil
}

func podStats(r *eci.DescribeMultiContainerGroupMetricPodStat1) stats.PodStats {
	at := metav1.NewTime(timeOf(r.Timestamp))
	pod := stats.PodStats{CPU: cpuStats(at, r.CPU), Memory: memoryStats(at, r.Memory), Network: networkStats(at, r.Network.Interfaces)}
	for i := range r.Containers {
		c := &r.Containers[i]
		pod.Containers = append(pod.Containers, stats.ContainerStats{
			Name:   c.Name,
			CPU:    cpuStats(at, eci.DescribeMultiContainerGroupMetricCPU2(c.CPU)),
			Memory: memoryStats(at, eci.DescribeMultiContainerGroupMetricMemory2(c.Memory)),
		})
	}
	return pod
}

// networkStats returns the statistics of all interfaces, with eth0, which all pods
// have, as the default interface.
func networkStats(at metav1.Time, interfaces []eci.DescribeMultiContainerGroupMetricInterface3) *stats.NetworkStats {
	if len(interfaces) == 0 {
		return nil
	}
	network := &stats.NetworkStats{Time: at}
	for i := range interfaces {
		n := &interfaces[i]
		network.Interfaces = append(network.Interfaces, stats.InterfaceStats{
			Name: n.Name, RxBytes: count(n.RxBytes), RxErrors: count(n.RxErrors), TxBytes: count(n.TxBytes), TxErrors: count(n.TxErrors),
		})
		if i == 0 || n.Name == "eth0" {
			network.InterfaceStats = network.Interfaces[i]
		}
	}
	return network
}

func cpuStats(at metav1.Time, c eci.DescribeMultiContainerGroupMetricCPU2) *stats.CPUStats {
	return &stats.CPUStats{Time: at, UsageNanoCores: count(c.UsageNanoCores), UsageCoreNanoSeconds: count(c.UsageCoreNanoSeconds)}
}

func memoryStats(at metav1.Time, m eci.DescribeMultiContainerGroupMetricMemory2) *stats.MemoryStats {
	return &stats.MemoryStats{
		Time: at, UsageBytes: count(m.UsageBytes), WorkingSetBytes: count(m.WorkingSet), RSSBytes: count(m.Rss), AvailableBytes: count(m.AvailableBytes),
	}
}

// count converts a value that is not negative.
func count(n int64) *uint64 {
	u := uint64(max(n, 0))
	return &u
}
