package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// GetStatsSummary implements nodeutil.Provider: the statistics of our pods, and as
// the node's the sum.
func (p *Provider) GetStatsSummary(ctx context.Context) (*stats.Summary, error) {
	ours := map[types.NamespacedName]*corev1.Pod{}
	for _, obj := range p.informer.GetStore().List() {
		if pod, ok := obj.(*corev1.Pod); ok {
			ours[translate.Key(pod)] = pod
		}
	}
	var pods []stats.PodStats
	var err error
	switch p.cfg.Stats {
	case StatsKubelets:
		pods, err = p.statsOfKubelets(ctx, ours)
	case StatsMetrics:
		pods, err = p.statsOfMetrics(ctx, ours)
	default:
		return nil, fmt.Errorf("the provider's configuration has stats: none: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	cpu := p.cpu.ofNode(pods)
	return &stats.Summary{Pods: pods, Node: stats.NodeStats{
		NodeName: p.home.Node.Name, StartTime: metav1.NewTime(p.started),
		CPU: cpu, Memory: memoryOf(pods, cpu.Time),
	}}, nil
}

// memoryOf is what pods use together.
func memoryOf(pods []stats.PodStats, at metav1.Time) *stats.MemoryStats {
	var bytes uint64
	for i := range pods {
		if memory := pods[i].Memory; memory != nil {
			bytes += value(memory.WorkingSetBytes)
		}
	}
	return &stats.MemoryStats{Time: at, WorkingSetBytes: &bytes}
}

// GetMetricsResource implements nodeutil.Provider.
func (p *Provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	summary, err := p.GetStatsSummary(ctx)
	if err != nil {
		return nil, err
	}
	return api.ResourceMetricsFromSummary(summary), nil
}

const (
	// kubeletTimeout is how long a remote kubelet may take to answer: less than
	// metrics-server waits for all of them.
	kubeletTimeout = 5 * time.Second
	// kubeletsAtOnce is how many are asked at the same time.
	kubeletsAtOnce = 8
)

// statsOfKubelets asks the kubelets of the nodes on which pods of ours run. One
// that does not answer does not take the others away.
func (p *Provider) statsOfKubelets(ctx context.Context, ours map[types.NamespacedName]*corev1.Pod) ([]stats.PodStats, error) {
	nodes := map[string]struct{}{}
	for _, pod := range ours {
		if pod.Spec.NodeName != "" {
			nodes[pod.Spec.NodeName] = struct{}{}
		}
	}
	var mu sync.Mutex
	found := []stats.PodStats{}
	var errs []error
	var group errgroup.Group
	group.SetLimit(kubeletsAtOnce)
	for name := range nodes {
		group.Go(func() error {
			pods, err := p.statsOfKubelet(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("remote node %s: %w", name, err))
			}
			for _, s := range pods {
				remote := ours[types.NamespacedName{Namespace: s.PodRef.Namespace, Name: s.PodRef.Name}]
				if remote != nil && string(remote.UID) == s.PodRef.UID {
					s.PodRef = homeRef(remote)
					found = append(found, s)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
	if len(errs) == len(nodes) {
		return found, errors.Join(errs...)
	}
	return found, nil
}

// statsOfKubelet returns the statistics of all pods of a remote node.
func (p *Provider) statsOfKubelet(ctx context.Context, node string) ([]stats.PodStats, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	text, err := p.remote.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("stats/summary").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var summary stats.Summary
	err = json.Unmarshal(text, &summary)
	return summary.Pods, err
}

func homeRef(remote *corev1.Pod) stats.PodReference {
	name := translate.NameOf(remote)
	return stats.PodReference{Namespace: name.Namespace, Name: name.Name, UID: string(translate.UIDOf(remote))}
}

// podMetrics is a list of metrics.k8s.io/v1beta1 as far as it is needed.
type podMetrics struct {
	Items []podMetricsItem `json:"items"`
}

type podMetricsItem struct {
	Metadata   metav1.ObjectMeta  `json:"metadata"`
	Timestamp  metav1.Time        `json:"timestamp"`
	Containers []containerMetrics `json:"containers"`

	pod *corev1.Pod // the remote one
}

type containerMetrics struct {
	Name  string                       `json:"name"`
	Usage map[string]resource.Quantity `json:"usage"`
}

func (c *containerMetrics) nanoCores() uint64 {
	cpu := c.Usage["cpu"]
	return uint64(max(cpu.ScaledValue(resource.Nano), 0))
}

func (c *containerMetrics) bytes() uint64 {
	memory := c.Usage["memory"]
	return uint64(max(memory.Value(), 0))
}

// statsOfMetrics asks the remote cluster's metrics API.
func (p *Provider) statsOfMetrics(ctx context.Context, ours map[types.NamespacedName]*corev1.Pod) ([]stats.PodStats, error) {
	if !p.identity.isKnown() {
		return nil, nil // nor is any pod
	}
	path := "/apis/metrics.k8s.io/v1beta1/pods"
	if p.namespace != "" {
		path = "/apis/metrics.k8s.io/v1beta1/namespaces/" + p.namespace + "/pods"
	}
	text, err := p.remote.Discovery().RESTClient().Get().AbsPath(path).Param("labelSelector", p.translate.Home.Selector()).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the remote cluster's metrics API: %w", err)
	}
	var metrics podMetrics
	if err := json.Unmarshal(text, &metrics); err != nil {
		return nil, fmt.Errorf("cannot read the answer of the remote cluster's metrics API: %w", err)
	}
	var items []podMetricsItem // of our pods
	now := map[measured]measurement{}
	for _, m := range metrics.Items {
		if remote := ours[types.NamespacedName{Namespace: m.Metadata.Namespace, Name: m.Metadata.Name}]; remote != nil {
			m.pod = remote
			items = append(items, m)
			for _, c := range m.Containers {
				now[measured{remote.UID, c.Name}] = measurement{m.Timestamp, c.nanoCores()}
			}
		}
	}
	times := p.cpu.count(now)
	found := make([]stats.PodStats, 0, len(items))
	for _, m := range items {
		found = append(found, m.stats(times))
	}
	return found, nil
}

// stats are the statistics of a pod, given the CPU time of its containers.
func (m *podMetricsItem) stats(times map[measured]cpuTime) stats.PodStats {
	pod := stats.PodStats{PodRef: homeRef(m.pod), StartTime: m.pod.CreationTimestamp}
	var cores, total, bytes uint64
	for i := range m.Containers {
		c := &m.Containers[i]
		cpu, nano, working := times[measured{m.pod.UID, c.Name}], c.nanoCores(), c.bytes()
		cores, total, bytes = cores+nano, total+cpu.used, bytes+working
		pod.Containers = append(pod.Containers, stats.ContainerStats{
			Name: c.Name, StartTime: cpu.since,
			CPU:    &stats.CPUStats{Time: cpu.at, UsageNanoCores: &nano, UsageCoreNanoSeconds: &cpu.used},
			Memory: &stats.MemoryStats{Time: m.Timestamp, WorkingSetBytes: &working},
		})
	}
	pod.CPU = &stats.CPUStats{Time: m.Timestamp, UsageNanoCores: &cores, UsageCoreNanoSeconds: &total}
	pod.Memory = &stats.MemoryStats{Time: m.Timestamp, WorkingSetBytes: &bytes}
	return pod
}

func value(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
