package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// population is a number of pods, of which some are deleted each second and others made in their
// place, half of them of the same name.
type population struct {
	client kubernetes.Interface
	shape  func(*corev1.Pod, *rand.Rand)
	stop   context.CancelFunc
	group  *errgroup.Group
	vacant chan string // names of pods that are gone

	mu     sync.Mutex
	random *rand.Rand
	pods   map[string]*corev1.Pod // as the watch shows them
	gone   int
	ended  bool // nothing more is made
}

// workers are the requests at a time.
const workers = 20

// newPopulation makes the pods, and returns when they run, and some begin to be replaced.
func (s *soak) newPopulation(ctx context.Context) (*population, error) {
	ctx, stop := context.WithCancel(ctx)
	p := &population{client: s.home.client, shape: shapes[s.provider], stop: stop, vacant: make(chan string, 2*s.pods),
		random: rand.New(rand.NewPCG(s.seed, 0)), pods: map[string]*corev1.Pod{}}
	p.group, ctx = errgroup.WithContext(ctx)
	if err := p.watch(ctx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	for i := range s.pods {
		p.vacant <- fmt.Sprintf("pod-%06d", i)
	}
	for range workers {
		p.group.Go(func() error { return p.fill(ctx) })
	}
	err := wait.PollUntilContextTimeout(ctx, time.Second, 10*time.Minute, true, func(context.Context) (bool, error) {
		return p.running() >= s.pods*9/10, nil // some end or fail by themselves
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%d of %d pods run: %w", p.running(), s.pods, err), p.close())
	}
	p.group.Go(func() error { return p.churn(ctx, time.Duration(float64(time.Second)/s.rate)) })
	return p, nil
}

// wait returns why no more is done with the pods, once that is so.
func (p *population) wait() error {
	if err := p.group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// close ends what is done with the pods.
func (p *population) close() error {
	p.stop()
	return p.wait()
}

// patiently does a request of the population's own until the API server has an answer to it: that may be short of
// CPU, too.
func patiently(ctx context.Context, request func() error) error {
	var err error
	_ = wait.PollUntilContextTimeout(ctx, 2*time.Second, 5*time.Minute, true, func(context.Context) (bool, error) {
		err = request()
		answered := err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err)
		return answered, nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// watch follows the pods.
func (p *population) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	see := func(object any) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pods[pod.Name] = pod
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: p.leaves,
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	p.group.Go(func() error { <-ctx.Done(); factory.Shutdown(); return ctx.Err() })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// leaves notes that a pod is gone.
func (p *population) leaves(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, name.Name)
	p.gone++
	if p.ended {
		return
	}
	next := name.Name
	if p.random.IntN(2) == 0 {
		next = fmt.Sprintf("pod-%06d-%d", p.random.IntN(1e6), p.gone)
	}
	p.vacant <- next // has room for all
}

// fill makes pods in place of those that are gone.
func (p *population) fill(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case name := <-p.vacant:
			pod := p.pod(name)
			err := patiently(ctx, func() error {
				_, err := p.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
				return err
			})
			if err != nil && !apierrors.IsAlreadyExists(err) { // by a request whose answer was lost
				return fmt.Errorf("create pod %s: %w", name, err)
			}
		}
	}
}

func (p *population) pod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:    node,
			Containers:  []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10.1"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shape(pod, p.random)
	return pod
}

// churn deletes pods, and reads logs.
func (p *population) churn(ctx context.Context, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		pod, grace := p.draw()
		if pod == nil {
			continue
		}
		// Of a pod that is about to go or to start there may be none, and without the API server the agent cannot ask who reads.
		_, _ = p.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: ptr.To[int64](5)}).Timeout(slack).DoRaw(ctx)
		err := patiently(ctx, func() error {
			return p.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s: %w", pod.Name, err)
		}
	}
}

// draw chooses a pod to go, one that has ended before others, and how long it may take: a few are
// deleted at once.
func (p *population) draw() (pod *corev1.Pod, grace *int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var stay []*corev1.Pod
	for _, each := range p.pods {
		if each.DeletionTimestamp != nil {
			continue
		}
		if stay = append(stay, each); each.Status.Phase == corev1.PodSucceeded || each.Status.Phase == corev1.PodFailed {
			return each, nil
		}
	}
	if len(stay) == 0 {
		return nil, nil
	}
	if p.random.IntN(20) == 0 {
		grace = new(int64)
	}
	return stay[p.random.IntN(len(stay))], grace
}

func (p *population) running() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		if pod.Status.Phase != corev1.PodPending && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

func (p *population) replaced() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// slack is how late a pod may be.
const slack = time.Minute

// late are the names of pods that should have been started, or gone, for a minute.
func (p *population) late(now time.Time) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, pod := range p.pods {
		since := pod.CreationTimestamp.Time
		if pod.DeletionTimestamp != nil {
			since = pod.DeletionTimestamp.Time
		} else if pod.Status.Phase != corev1.PodPending {
			continue
		}
		if now.Sub(since) > slack {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// deleteAll deletes the pods, and waits until they are gone.
func (p *population) deleteAll(ctx context.Context) error {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	err := wait.PollUntilContextTimeout(ctx, 10*time.Second, 15*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := p.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}) // and those that were just made
		if err != nil || len(list.Items) == 0 {
			return err == nil, err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(workers)
		for _, pod := range list.Items {
			if pod.DeletionTimestamp != nil {
				continue
			}
			group.Go(func() error {
				err := p.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		}
		return false, group.Wait()
	})
	if err != nil {
		return fmt.Errorf("wait until all pods are gone: %w", err)
	}
	return nil
}
