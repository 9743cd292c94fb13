package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/cputime"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// GetStatsSummary implements nodeutil.Provider. It returns the statistics of the pods
// of this node; those of the node are their sum.
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
		pods, err = p.kubeletStats(ctx, ours)
	case StatsMetrics:
		pods, err = p.metricsStats(ctx, ours)
	default:
		return nil, fmt.Errorf("the provider's configuration has stats: none: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	for i := range pods {
		p.dropOthersContainers(&pods[i])
	}
	cpu := p.cpu.OfNode(pods, nil)
	return &stats.Summary{Pods: pods, Node: stats.NodeStats{
		NodeName: p.home.Node.Name, StartTime: metav1.NewTime(p.started),
		CPU: cpu, Memory: sumMemory(pods, cpu.Time),
	}}, nil
}

// dropOthersContainers removes the containers that a pod does not have at home, such as sidecars
// that the remote cluster's admission has added: what sums up containers relates that to the
// requests of those at home. The pod as a whole uses what it uses.
func (p *Provider) dropOthersContainers(s *stats.PodStats) {
	local := p.localPod(types.NamespacedName{Namespace: s.PodRef.Namespace, Name: s.PodRef.Name}, types.UID(s.PodRef.UID))
	if local == nil {
		return
	}
	s.Containers = slices.DeleteFunc(s.Containers, func(c stats.ContainerStats) bool { return !translate.HasContainer(local, c.Name) })
}

// sumMemory returns the sum of the memory of pods.
func sumMemory(pods []stats.PodStats, at metav1.Time) *stats.MemoryStats {
	var bytes uint64
	for i := range pods {
		if memory := pods[i].Memory; memory != nil {
			bytes += valueOrZero(memory.WorkingSetBytes)
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
	// kubeletTimeout is the timeout of a request to a remote kubelet. It is shorter
	// than metrics-server's.
	kubeletTimeout = 5 * time.Second
	// kubeletConcurrency is the number of requests at the same time.
	kubeletConcurrency = 8
)

// kubeletStats requests statistics from the kubelets of the nodes with pods of this
// provider. It fails only if all requests fail.
func (p *Provider) kubeletStats(ctx context.Context, ours map[types.NamespacedName]*corev1.Pod) ([]stats.PodStats, error) {
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
	group.SetLimit(kubeletConcurrency)
	for name := range nodes {
		group.Go(func() error {
			pods, err := p.kubeletSummary(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("remote node %s: %w", name, err))
			}
			for _, s := range pods {
				remote := ours[types.NamespacedName{Namespace: s.PodRef.Namespace, Name: s.PodRef.Name}]
				if remote != nil && string(remote.UID) == s.PodRef.UID {
					s.PodRef = homePodReference(remote)
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

// kubeletSummary returns the statistics of all pods of a remote node.
func (p *Provider) kubeletSummary(ctx context.Context, node string) ([]stats.PodStats, error) {
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

func homePodReference(remote *corev1.Pod) stats.PodReference {
	name := translate.NameOf(remote)
	return stats.PodReference{Namespace: name.Namespace, Name: name.Name, UID: string(translate.UIDOf(remote))}
}

// podMetrics is the part that is used of a list of metrics.k8s.io/v1beta1.
type podMetrics struct {
	Items []podMetricsItem `json:"items"`
}

type podMetricsItem struct {
	Metadata   metav1.ObjectMeta  `json:"metadata"`
	Timestamp  metav1.Time        `json:"timestamp"`
	Containers []containerMetrics `json:"containers"`

	pod *corev1.Pod // the remote pod
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

// metricsStats requests statistics from the remote cluster's metrics API.
func (p *Provider) metricsStats(ctx context.Context, ours map[types.NamespacedName]*corev1.Pod) ([]stats.PodStats, error) {
	if !p.identity.isKnown() {
		return nil, nil // no pod is known either
	}
	path := "/apis/metrics.k8s.io/v1beta1/pods"
	if p.namespace != "" {
		path = "/apis/metrics.k8s.io/v1beta1/namespaces/" + p.namespace + "/pods"
	}
	text, err := p.remote.Discovery().RESTClient().Get().AbsPath(path).Param("labelSelector", p.translate.Home.Selector()).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot request pod metrics from the remote cluster: %w", err)
	}
	var metrics podMetrics
	if err := json.Unmarshal(text, &metrics); err != nil {
		return nil, fmt.Errorf("cannot decode the pod metrics of the remote cluster: %w", err)
	}
	var items []podMetricsItem // of the pods of this node
	now := map[cputime.Key]cputime.Measurement{}
	for _, m := range metrics.Items {
		if remote := ours[types.NamespacedName{Namespace: m.Metadata.Namespace, Name: m.Metadata.Name}]; remote != nil {
			m.pod = remote
			items = append(items, m)
			for _, c := range m.Containers {
				now[cputime.Key{Pod: remote.UID, Container: c.Name}] = cputime.Measurement{At: m.Timestamp, NanoCores: c.nanoCores()}
			}
		}
	}
	times := p.cpu.Count(now, nil)
	found := make([]stats.PodStats, 0, len(items))
	for _, m := range items {
		found = append(found, m.stats(times))
	}
	return found, nil
}

// stats returns the statistics of a pod, given the CPU times of its containers.
func (m *podMetricsItem) stats(times map[cputime.Key]cputime.Time) stats.PodStats {
	pod := stats.PodStats{PodRef: homePodReference(m.pod), StartTime: m.pod.CreationTimestamp}
	var cores, total, bytes uint64
	at := m.Timestamp
	for i := range m.Containers {
		c := &m.Containers[i]
		cpu, nano, working := times[cputime.Key{Pod: m.pod.UID, Container: c.Name}], c.nanoCores(), c.bytes()
		at = cpu.At // not that of a clock that is ahead
		cores, total, bytes = cores+nano, total+cpu.Used, bytes+working
		pod.Containers = append(pod.Containers, stats.ContainerStats{
			Name: c.Name, StartTime: cpu.Since,
			CPU:    &stats.CPUStats{Time: at, UsageNanoCores: &nano, UsageCoreNanoSeconds: &cpu.Used},
			Memory: &stats.MemoryStats{Time: at, WorkingSetBytes: &working},
		})
	}
	pod.CPU = &stats.CPUStats{Time: at, UsageNanoCores: &cores, UsageCoreNanoSeconds: &total}
	pod.Memory = &stats.MemoryStats{Time: at, WorkingSetBytes: &bytes}
	return pod
}

func valueOrZero(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
