package eci

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// metricsMaxAge is the maximum age of cached metrics: the API has new ones every 15
	// seconds.
	metricsMaxAge = 15 * time.Second
	// metricsConcurrency is the number of calls for metrics at the same time: the API
	// has one call for each group.
	metricsConcurrency = 4
)

// metrics caches the metrics of the node's groups.
type metrics struct {
	mu       sync.Mutex // held during the calls, so that concurrent callers share them
	at       time.Time
	groupIDs []string // the IDs of the groups in the summary, sorted
	summary  *stats.Summary
}

// GetStatsSummary returns the statistics of running pods, and their sum as those of the
// node. A pod without metrics is left out.
func (p *Provider) GetStatsSummary(ctx context.Context) (*stats.Summary, error) {
	p.metrics.mu.Lock()
	defer p.metrics.mu.Unlock()
	all, err := p.groups.all(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(_ types.UID, found group) bool { return !hasMetrics(found.Status) })
	var ids []string
	for _, found := range all {
		ids = append(ids, found.ContainerGroupId)
	}
	slices.Sort(ids)
	if p.metrics.summary != nil && time.Since(p.metrics.at) < metricsMaxAge && slices.Equal(ids, p.metrics.groupIDs) {
		return p.metrics.summary, nil
	}
	now := metav1.Now()
	summary := &stats.Summary{Node: stats.NodeStats{NodeName: p.nodeName, StartTime: metav1.NewTime(p.events.since)}}
	var mu sync.Mutex
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(metricsConcurrency)
	for _, found := range all {
		calls.Go(func() error {
			record, err := p.latestMetrics(callCtx, found.ContainerGroupId, now.Time)
			if err != nil && !errdefs.IsNotFound(err) {
				log.G(ctx).WithError(err).WithField("group", found.ContainerGroupId).Warn("Cannot get the metrics of a container group")
			}
			if record != nil {
				mu.Lock()
				defer mu.Unlock()
				summary.Pods = append(summary.Pods, podStats(&found, record))
			}
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	sumPods(summary, now)
	p.metrics.summary, p.metrics.at, p.metrics.groupIDs = summary, now.Time, ids
	return summary, nil
}

// hasMetrics reports whether a group with this status has running containers.
func hasMetrics(status string) bool {
	return status == groupRunning || status == groupUpdating || status == groupRestarting
}

// latestMetrics requests the latest metrics of a group; nil if there are none yet.
func (p *Provider) latestMetrics(ctx context.Context, id string, now time.Time) (*eci.DescribeContainerGroupMetricRecord0, error) {
	request := eci.CreateDescribeContainerGroupMetricRequest()
	request.RegionId, request.ContainerGroupId = p.cfg.Region, id
	request.StartTime = now.Add(-2 * time.Minute).UTC().Format(time.RFC3339)
	request.EndTime = now.UTC().Format(time.RFC3339)
	request.Period = "15"
	response := eci.CreateDescribeContainerGroupMetricResponse()
	if err := p.client.do(ctx, request, response); err != nil {
		return nil, err
	}
	var last *eci.DescribeContainerGroupMetricRecord0
	for i := range response.Records {
		if r := &response.Records[i]; last == nil || r.Timestamp > last.Timestamp {
			last = r
		}
	}
	return last, nil
}

func podStats(found *group, r *eci.DescribeContainerGroupMetricRecord0) stats.PodStats {
	at := timeOf(r.Timestamp)
	pod := stats.PodStats{
		PodRef:    stats.PodReference{Namespace: tagOf(found, TagNamespace), Name: tagOf(found, TagPodName), UID: string(uidOf(found))},
		StartTime: timeOf(found.CreationTime),
		CPU:       cpuStats(at, r.CPU.UsageNanoCores, r.CPU.UsageCoreNanoSeconds),
		Memory:    memoryStats(at, r.Memory),
	}
	for i := range r.Containers {
		c := &r.Containers[i]
		started := pod.StartTime
		if known, err := containerIn(found, c.Name); err == nil {
			started = timeOf(known.CurrentState.StartTime)
		}
		pod.Containers = append(pod.Containers, stats.ContainerStats{
			Name: c.Name, StartTime: started,
			CPU:    cpuStats(at, c.CPU.UsageNanoCores, c.CPU.UsageCoreNanoSeconds),
			Memory: memoryStats(at, eci.DescribeContainerGroupMetricMemory1(c.Memory)),
		})
	}
	pod.Network = networkStats(at, r.Network.Interfaces)
	return pod
}

// networkStats returns the statistics of all interfaces, with eth0, which all pods
// have, as the default interface.
func networkStats(at metav1.Time, interfaces []eci.DescribeContainerGroupMetricInterface2) *stats.NetworkStats {
	if len(interfaces) == 0 {
		return nil
	}
	network := &stats.NetworkStats{Time: at}
	for i := range interfaces {
		network.Interfaces = append(network.Interfaces, interfaceStats(&interfaces[i]))
		if i == 0 || interfaces[i].Name == "eth0" {
			network.InterfaceStats = network.Interfaces[i]
		}
	}
	return network
}

func cpuStats(at metav1.Time, nanoCores, coreNanoSeconds int64) *stats.CPUStats {
	return &stats.CPUStats{Time: at, UsageNanoCores: count(nanoCores), UsageCoreNanoSeconds: count(coreNanoSeconds)}
}

func memoryStats(at metav1.Time, m eci.DescribeContainerGroupMetricMemory1) *stats.MemoryStats {
	return &stats.MemoryStats{
		Time: at, UsageBytes: count(m.UsageBytes), WorkingSetBytes: count(m.WorkingSet), RSSBytes: count(m.Rss), AvailableBytes: count(m.AvailableBytes),
	}
}

func interfaceStats(i *eci.DescribeContainerGroupMetricInterface2) stats.InterfaceStats {
	return stats.InterfaceStats{
		Name: i.Name, RxBytes: count(i.RxBytes), RxErrors: count(i.RxErrors), TxBytes: count(i.TxBytes), TxErrors: count(i.TxErrors),
	}
}

// count converts a value that is not negative.
func count(n int64) *uint64 {
	u := uint64(max(n, 0))
	return &u
}

// sumPods sets the statistics of the node to the sum of its pods.
func sumPods(summary *stats.Summary, at metav1.Time) {
	var nanoCores, coreNanoSeconds, usage, workingSet uint64
	for i := range summary.Pods {
		pod := &summary.Pods[i]
		nanoCores += *pod.CPU.UsageNanoCores
		coreNanoSeconds += *pod.CPU.UsageCoreNanoSeconds
		usage += *pod.Memory.UsageBytes
		workingSet += *pod.Memory.WorkingSetBytes
	}
	summary.Node.CPU = &stats.CPUStats{Time: at, UsageNanoCores: &nanoCores, UsageCoreNanoSeconds: &coreNanoSeconds}
	summary.Node.Memory = &stats.MemoryStats{Time: at, UsageBytes: &usage, WorkingSetBytes: &workingSet}
}
