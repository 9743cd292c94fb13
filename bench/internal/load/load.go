// Package load creates and deletes pods on nodes as fast as it may, and measures
// how long whoever runs them takes. It knows nothing of the agent.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
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
	watcher, err := l.watch(ctx)
	if err != nil {
		return Phase{}, err
	}
	defer watcher.Stop()

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
		for len(seen) < l.Pods {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%d of %d pods within %v: %w", len(seen), l.Pods, l.Timeout, ctx.Err())
			case event, ok := <-watcher.ResultChan():
				if !ok {
					return errors.New("the watch of pods ended")
				}
				now := time.Now()
				pod, ok := event.Object.(*corev1.Pod)
				if !ok {
					return fmt.Errorf("the watch of pods ended: %w", apierrors.FromObject(event.Object))
				}
				if seen[pod.Name] || !arrived(event, pod) {
					continue
				}
				seen[pod.Name] = true
				mu.Lock()
				phase.Latencies = append(phase.Latencies, now.Sub(asked[pod.Name]))
				mu.Unlock()
				phase.Took = now.Sub(began)
			}
		}
		return nil
	})
	err = group.Wait()
	slices.Sort(phase.Latencies)
	return phase, err
}

func (l *Load) watch(ctx context.Context) (*watchtools.RetryWatcher, error) {
	pods := l.Client.CoreV1().Pods(l.Namespace)
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	})
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
