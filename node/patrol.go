package node

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// How often a provider that notifies is asked for its pods, only to find those
// that nobody wants any more, and what was not notified: each minute while there
// is something to find, and less and less often while there is not. Five minutes
// are what the kubelet takes for a runtime that has events (KEP-3386).
const (
	minCheckInterval = time.Minute
	maxCheckInterval = 5 * time.Minute
)

// patrol asks the provider for its pods at intervals until ctx ends: for their
// statuses where it does not notify, and to find orphans. wait returns, once ctx
// has ended, when the provider is not asked any more.
func (pc *PodController) patrol(ctx context.Context, workers int) (wait func()) {
	if pc.notifier != nil && pc.keepOrphans {
		return func() {}
	}
	rounds, interval := 0, pc.pollEvery
	return repeat(ctx, interval, func(ctx context.Context) time.Duration {
		quiet := pc.makeRound(ctx, workers)
		rounds++
		switch {
		case pc.notifier == nil || rounds < orphanAfter:
		case rounds == orphanAfter || !quiet:
			interval = minCheckInterval
		default:
			interval = min(2*interval, maxCheckInterval)
		}
		return interval
	})
}

// makeRound asks the provider for its pods once, and tells whether nothing was
// found that has to be looked at again.
func (pc *PodController) makeRound(ctx context.Context, workers int) (quiet bool) {
	asked := pc.heard.Load()
	found, err := pc.backend.list(ctx)
	if err != nil {
		if ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("The provider cannot list its pods")
		}
		if pc.notifier == nil && errdefs.ClassOf(err) == errdefs.UnknownClass {
			pc.poll(ctx, nil, asked, workers) // it may be one that has no list at all
		}
		return false
	}
	quiet = true
	if pc.notifier == nil {
		pc.poll(ctx, found, asked, workers)
	} else {
		quiet = pc.compare(found, asked)
	}
	pc.noteStrays(ctx, found)
	if !pc.keepOrphans {
		pc.findOrphans(ctx)
	}
	return quiet && !pc.strays.waiting()
}

// poll takes the statuses of a list, and asks one by one for the pods that it
// does not tell about.
func (pc *PodController) poll(ctx context.Context, found []*corev1.Pod, asked uint64, workers int) {
	listed := make(map[string]*corev1.Pod, len(found))
	for _, pod := range found {
		listed[keyOf(pod)] = pod
	}
	var group errgroup.Group
	group.SetLimit(workers)
	pc.records.each(func(key string, r *podRecord) {
		r.mu.Lock()
		wanted := r.pod
		follow := wanted != nil && !r.theirs && r.provider == held && !r.stopped() && r.heard <= asked
		r.mu.Unlock()
		if !follow || ctx.Err() != nil {
			return
		}
		if pod := listed[key]; pod != nil && pod.Status.Phase != "" && pc.identity.same(wanted, pod) {
			pc.hear(key, r, wanted, &pod.Status, asked)
			return
		}
		group.Go(func() error {
			ctx := withPod(ctx, wanted)
			status, err := pc.backend.status(ctx, wanted.Namespace, wanted.Name, wanted.UID)
			if err != nil {
				log.G(ctx).WithError(err).Warn("The provider cannot tell the status of a pod")
				return nil
			}
			pc.hear(key, r, wanted, status, asked)
			return nil
		})
	})
	_ = group.Wait() // nothing returns an error
}

// hear takes the answer to a question about a pod; nil means that the provider
// does not know it.
func (pc *PodController) hear(key string, r *podRecord, pod *corev1.Pod, status *corev1.PodStatus, asked uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uid() != pod.UID || r.heard > asked {
		return // it was about another pod, or before what we know
	}
	if status == nil {
		r.missing++
		if r.missing >= lostAfter || r.asked != requestNone {
			r.provider = absent
			pc.syncs.Add(key)
		}
		return
	}
	r.missing = 0
	pc.listen(key, r, status, asked)
}
