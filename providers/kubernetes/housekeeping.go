package kubernetes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

const (
	// housekeepingInterval is how often each task runs, and forgetInterval how often
	// pods that are in neither cluster are dropped.
	housekeepingInterval = 5 * time.Minute
	forgetInterval       = 10 * time.Second
	// forgetAge is how long a pod has to be registered before it may be dropped for
	// being in neither cluster.
	forgetAge = 10 * time.Second
)

// runHousekeeping deletes, once the caches have synced and then at intervals, what
// pods, claims and Services that are gone have left in the remote cluster, and checks
// that the caches are up to date.
func (p *Provider) runHousekeeping(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return
	}
	tasks := p.housekeepingTasks()
	for ctx.Err() == nil {
		remote := p.forgetMissing()
		for _, task := range tasks {
			if time.Since(task.last) < housekeepingInterval || !task.ready() || !task.readOnly && !p.mayBegin() {
				continue
			}
			task.last = time.Now()
			if err := task.run(ctx, remote); err != nil && ctx.Err() == nil {
				log.G(ctx).WithError(err).Warn("Housekeeping in the remote cluster failed; retrying")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(forgetInterval):
		}
	}
}

// housekeepingTask is what runHousekeeping does for one kind of objects.
type housekeepingTask struct {
	ready func() bool // the home caches have synced
	run   func(ctx context.Context, remote []*corev1.Pod) error
	last  time.Time

	readOnly bool // it changes nothing, and may run while another process holds the node
}

// housekeepingTasks returns the tasks for the kinds that the configuration uses. The
// checks of the provider's start and of its caches are first repeated after an interval.
func (p *Provider) housekeepingTasks() []*housekeepingTask {
	always := func() bool { return true }
	tasks := []*housekeepingTask{{ready: always, run: func(ctx context.Context, remote []*corev1.Pod) error {
		return p.reflector.CollectGarbage(ctx, p.metadata, p.namespace, remote)
	}}}
	add := func(task *housekeepingTask, run func(context.Context) error) {
		task.run = func(ctx context.Context, _ []*corev1.Pod) error { return run(ctx) }
		tasks = append(tasks, task)
	}
	if p.claims != nil {
		add(&housekeepingTask{ready: p.claims.HasSynced}, func(ctx context.Context) error { return p.claims.CollectGarbage(ctx, p.namespace) })
	}
	add(&housekeepingTask{ready: always, last: time.Now()}, p.checkOthers)
	add(&housekeepingTask{ready: always, last: time.Now(), readOnly: true}, p.checkWatch)
	if p.services != nil {
		add(&housekeepingTask{ready: p.services.HasSynced}, func(ctx context.Context) error { return p.services.CollectGarbage(ctx, p.namespace) })
	}
	return tasks
}

// isAtHome reports whether the home cluster has a pod, as far as is known.
func (p *Provider) isAtHome(pod *corev1.Pod) bool {
	local, err := p.home.Pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && local.UID == pod.UID || err != nil && !apierror.IsNotFound(err)
}

// forgetMissing drops pods that are in neither cluster, such as those that could not be
// created. It returns the remote pods.
func (p *Provider) forgetMissing() []*corev1.Pod {
	remote := p.remotePods()
	present := map[types.UID]struct{}{}
	for _, pod := range remote {
		present[translate.UIDOf(pod)] = struct{}{}
		if local := p.homePod(pod); local != nil { // it may have come to the cache after the remote pod
			p.adoptPod(local, pod)
			p.watchDeletion(pod)
		}
	}
	for _, pod := range p.reflector.RegisteredPods(forgetAge) {
		if _, ok := present[pod.UID]; !ok && !p.isAtHome(pod) {
			p.reflector.UnregisterPod(pod.UID)
		}
	}
	p.forgetSeen(present)
	p.forgetDeleting(remote)
	p.forgetUnscheduled(remote)
	return remote
}
