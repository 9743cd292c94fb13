// Package load creates and deletes pods on nodes as fast as it may, and measures
// how long it takes until they run. It knows nothing of the agent.
package load

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/follow"
)

// Load is pods to be created and deleted. Create, then Delete, are called once.
type Load struct {
	Client    kubernetes.Interface
	Namespace string // must exist, with its service account
	Nodes     []string
	Pods      int // over all nodes
	Workers   int // requests at a time
	// Rate is the most requests a second; 0 means no limit.
	Rate float64
	// Shape changes a pod before it is created. May be nil.
	Shape func(*corev1.Pod)
	// Timeout is how long a phase may take until its last pod has arrived.
	Timeout time.Duration
}

// Phase is what a phase took.
type Phase struct {
	// Took is from the first request until the last pod had arrived.
	Took time.Duration
	// Latencies are from a pod's request until it had arrived, in order of
	// length.
	Latencies []time.Duration
}

// Throughput is in pods a second.
func (p Phase) Throughput() float64 { return float64(len(p.Latencies)) / p.Took.Seconds() }

// Percentile is the latency that a share of pods (0 to 1) did not exceed.
func (p Phase) Percentile(share float64) time.Duration {
	if len(p.Latencies) == 0 {
		return 0
	}
	i := int(math.Ceil(share*float64(len(p.Latencies)))) - 1
	return p.Latencies[min(max(i, 0), len(p.Latencies)-1)]
}

// Create creates the pods, and returns when all are Running.
func (l *Load) Create(ctx context.Context) (Phase, error) {
	phase, err := l.run(ctx, func(ctx context.Context, i int) error {
		_, err := l.Client.CoreV1().Pods(l.Namespace).Create(ctx, l.pod(i), metav1.CreateOptions{})
		return err
	}, func(event watch.Event, pod *corev1.Pod) bool {
		return event.Type != watch.Deleted && pod.Status.Phase == corev1.PodRunning
	})
	if err != nil {
		return phase, fmt.Errorf("create pods until they run: %w", err)
	}
	return phase, nil
}

// Delete deletes the pods gracefully, and returns when all are gone.
func (l *Load) Delete(ctx context.Context) (Phase, error) {
	phase, err := l.run(ctx, func(ctx context.Context, i int) error {
		return l.Client.CoreV1().Pods(l.Namespace).Delete(ctx, name(i), metav1.DeleteOptions{})
	}, func(event watch.Event, _ *corev1.Pod) bool { return event.Type == watch.Deleted })
	if err != nil {
		return phase, fmt.Errorf("delete pods until they are gone: %w", err)
	}
	return phase, nil
}

// run makes a request for each pod and waits until each has arrived.
func (l *Load) run(ctx context.Context, request func(context.Context, int) error, arrived func(watch.Event, *corev1.Pod) bool) (Phase, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	pods := l.Client.CoreV1().Pods(l.Namespace)
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return Phase{}, err
	}

	began := time.Now()
	var mu sync.Mutex
	asked := make(map[string]time.Time, l.Pods)
	group, ctx := errgroup.WithContext(ctx)
	todo := make(chan int)
	group.Go(func() error {
		defer close(todo)
		limit := rate.NewLimiter(rate.Inf, 1)
		if l.Rate > 0 {
			limit.SetLimit(rate.Limit(l.Rate))
		}
		for i := range l.Pods {
			if err := limit.Wait(ctx); err != nil {
				return err
			}
			select {
			case todo <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range l.Workers {
		group.Go(func() error {
			for i := range todo {
				mu.Lock()
				asked[name(i)] = time.Now()
				mu.Unlock()
				if err := request(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var phase Phase
	group.Go(func() error {
		seen := make(map[string]bool, l.Pods)
		err := follow.Watch(ctx, pods, metav1.ListOptions{ResourceVersion: list.ResourceVersion}, func(event watch.Event) bool {
			now := time.Now()
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || seen[pod.Name] || !arrived(event, pod) {
				return false
			}
			seen[pod.Name] = true
			mu.Lock()
			phase.Latencies = append(phase.Latencies, now.Sub(asked[pod.Name]))
			mu.Unlock()
			phase.Took = now.Sub(began)
			return len(seen) == l.Pods
		})
		if err != nil {
			return fmt.Errorf("%d of %d pods within %v: %w", len(seen), l.Pods, l.Timeout, err)
		}
		return nil
	})
	err = group.Wait()
	slices.Sort(phase.Latencies)
	return phase, err
}

func name(i int) string { return fmt.Sprintf("pod-%06d", i) }

func (l *Load) pod(i int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name(i)},
		Spec: corev1.PodSpec{
			NodeName:    l.Nodes[i%len(l.Nodes)],
			Containers:  []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10.1"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if l.Shape != nil {
		l.Shape(pod)
	}
	return pod
}
