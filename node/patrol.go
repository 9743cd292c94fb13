package node

import (
	"context"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// patrol asks the provider for its pods at intervals until ctx ends: for their
// statuses where it does not notify, and to find orphans. wait returns, once ctx
// has ended, when the provider is not asked any more. seeded is the error of the list
// at start-up, if it failed.
func (pc *PodController) patrol(ctx context.Context, workers int, seeded error) (wait func()) {
	if pc.notifier != nil && pc.keepOrphans {
		return func() {}
	}
	plan := rounds{every: pc.pollEvery, notified: pc.notifier != nil}
	first := plan.every
	if seeded != nil {
		first = plan.next(false, seeded)
	}
	var listAgain time.Time
	return repeat(ctx, first, func(ctx context.Context) time.Duration {
		rest := time.Until(listAgain)
		if rest <= 0 {
			quiet, err := pc.makeRound(ctx, workers)
			rest = plan.next(quiet, err)
			if !pc.mayHaveNoList(err) {
				return rest
			}
			listAgain = time.Now().Add(rest)
		}
		pc.pollSome(ctx, workers)
		return min(rest, pc.pollEvery)
	})
}

// mayHaveNoList reports whether the provider may be one that has to be asked for each
// pod: its list has never worked, and fails with an error of no class. A list that
// worked before, or that says why it fails, works again one day; until then the pods
// are not asked for one by one, which would add to what the backend suffers from.
func (pc *PodController) mayHaveNoList(err error) bool {
	return err != nil && pc.notifier == nil && !pc.strays.known() && errdefs.ClassOf(err) == errdefs.UnknownClass
}

// makeRound asks the provider for its pods once, and reports whether nothing was
// found that has to be looked at again. The error is that of a list that failed.
func (pc *PodController) makeRound(ctx context.Context, workers int) (quiet bool, err error) {
	asked := pc.heard.Load()
	found, err := pc.backend.list(ctx)
	if err != nil {
		if ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("The provider cannot list its pods")
		}
		return false, err
	}
	quiet = true
	if pc.notifier == nil {
		pc.poll(ctx, found, asked, workers, math.MaxInt)
	} else {
		quiet = pc.compare(found, asked)
	}
	pc.noteStrays(ctx, found)
	if !pc.keepOrphans {
		pc.findOrphans(ctx)
	}
	return quiet && !pc.strays.waiting(), nil
}

// pollSome asks for a few pods one by one, as many as there are workers, whichever
// they are: a provider that has no list is not asked for all of them at once.
func (pc *PodController) pollSome(ctx context.Context, workers int) {
	pc.poll(ctx, nil, pc.heard.Load(), workers, workers)
}

// poll takes the statuses of a list, and asks one by one for the pods that it
// does not tell about, at most as many as the last argument says.
func (pc *PodController) poll(ctx context.Context, found []*corev1.Pod, asked uint64, workers, most int) {
	listed := make(map[string]*corev1.Pod, len(found))
	for _, pod := range found {
		listed[keyOf(pod)] = pod
	}
	var group errgroup.Group
	group.SetLimit(workers)
	pc.records.each(func(key string, r *podRecord) {
		r.mu.Lock()
		shown := listed[key]
		if shown != nil {
			pc.reappears(key, r, shown, asked)
		}
		wanted := r.pod
		follow := wanted != nil && !r.theirs && r.provider == held && !r.stopped() && r.heard <= asked
		if shown != nil && follow && (shown.Status.Phase == "" || !pc.isOf(r, shown)) {
			shown = nil
		}
		r.mu.Unlock()
		if !follow || ctx.Err() != nil {
			return
		}
		if shown != nil {
			pc.hear(key, r, wanted, &shown.Status, asked)
			return
		}
		if most--; most < 0 {
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
		r.missed(time.Now())
		r.inspected = time.Now()
		pc.syncs.Add(key)
		return
	}
	r.found()
	pc.listen(key, r, status, asked)
}

// reappears has the provider asked about a pod that it did not know and shows now: it
// was overlooked, or it was given up, and is to be ended. r.mu is held.
func (pc *PodController) reappears(key string, r *podRecord, shown *corev1.Pod, asked uint64) {
	if r.pod == nil || r.theirs || r.heard > asked {
		return
	}
	switch ended := isTerminal(shown.Status.Phase); {
	case r.provider == absent && r.removed && (!ended || r.asked == requestNone): // finalizers hold it
	case ended:
		return
	case r.provider == absent && r.asked == requestNone && !r.missedAt.IsZero():
	case r.provider == absent && r.asked != requestNone && r.givenUp():
	case r.provider == held && r.stopped() && r.wasLost(): // once more
	default:
		return
	}
	if !pc.isOf(r, shown) {
		return
	}
	if r.givenUp() {
		r.said = nil // whatever it said before, it runs
	}
	r.provider = unknown
	pc.syncs.Add(key)
}

// givenUp reports whether the record's pod has ended for the API, and stays there.
// r.mu is held.
func (r *podRecord) givenUp() bool {
	return r.pod.DeletionTimestamp == nil && (isTerminal(r.pod.Status.Phase) || r.report != nil && isTerminal(r.report.Phase))
}

// wasLost reports whether the record's pod counts as lost. r.mu is held.
func (r *podRecord) wasLost() bool {
	return r.report != nil && r.report.Phase == corev1.PodFailed && r.report.Reason == StatusReasonNotFound ||
		r.pod.Status.Phase == corev1.PodFailed && r.pod.Status.Reason == StatusReasonNotFound
}
