package podlifecycle

import (
	"context"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// relist asks the provider for its pods at intervals until ctx ends: for their
// statuses where it does not notify, and to find orphans. wait returns, once ctx
// has ended, when the provider is not asked any more. restored is the error of the list
// at start-up, if it failed.
func (pc *Controller) relist(ctx context.Context, workers int, restored error) (wait func()) {
	if pc.notifier != nil && pc.cfg.KeepOrphans {
		return func() {}
	}
	plan := rounds{every: pc.cfg.PollInterval, notified: pc.notifier != nil}
	first := plan.every
	if restored != nil {
		first = plan.next(false, restored)
	}
	var listAgain time.Time
	return periodic.Run(ctx, first, func(ctx context.Context) time.Duration {
		rest := time.Until(listAgain)
		if rest <= 0 {
			quiet, err := pc.relistOnce(ctx, workers)
			rest = plan.next(quiet, err)
			if !pc.mayHaveNoList(err) {
				return rest
			}
			listAgain = time.Now().Add(rest)
		}
		// A provider that has no list is not asked for all of its pods at once.
		pc.poll(ctx, nil, time.Now(), pc.observations.Load(), workers, workers)
		return min(rest, pc.cfg.PollInterval)
	})
}

// mayHaveNoList reports whether the provider may be one that has to be asked for each
// pod: its list has never worked, and fails with an error of no class. A list that
// worked before, or that says why it fails, works again one day; until then the pods
// are not asked for one by one, which would add to what the backend suffers from.
func (pc *Controller) mayHaveNoList(err error) bool {
	return err != nil && pc.notifier == nil && !pc.candidates.known() && errdefs.ClassOf(err) == errdefs.UnknownClass
}

// relistOnce asks the provider for its pods once, and reports whether nothing was
// found that has to be looked at again. The error is that of a list that failed.
func (pc *Controller) relistOnce(ctx context.Context, workers int) (quiet bool, err error) {
	since, asked := pc.observations.Load(), time.Now()
	found, err := pc.backend.list(ctx)
	if err != nil {
		if ctx.Err() == nil {
			log.G(ctx).WithError(err).Warn("The provider cannot list its pods")
		}
		return false, err
	}
	quiet = true
	if pc.notifier == nil {
		pc.poll(ctx, found, asked, since, workers, math.MaxInt)
	} else {
		quiet = pc.compare(found, asked, since)
	}
	pc.recordCandidates(ctx, found)
	if !pc.cfg.KeepOrphans {
		pc.findOrphans(ctx)
	}
	return quiet && !pc.candidates.waiting(), nil
}

// poll takes the statuses of a list that was asked for at a time, and asks one by one for the pods that the list
// says nothing about, at most as many as the last argument says.
func (pc *Controller) poll(ctx context.Context, found []*corev1.Pod, asked time.Time, since uint64, workers, most int) {
	listed := make(map[types.UID]*corev1.Pod, len(found))
	for _, pod := range found {
		if which := pc.backend.identify(pod); which.is {
			listed[which.id] = pod
		}
	}
	var group errgroup.Group
	group.SetLimit(workers)
	pc.records.each(func(r *podRecord) {
		r.mu.Lock()
		shown := listed[r.id]
		if shown != nil {
			pc.reappears(r, shown, asked, since)
		}
		wanted := r.pod
		polled := !r.orphan && r.observed == held && !r.stopped() && r.observation <= since
		r.mu.Unlock()
		if !polled || ctx.Err() != nil {
			return
		}
		if shown != nil && shown.Status.Phase != "" {
			pc.answered(r, &shown.Status, since)
			return
		}
		if most--; most < 0 {
			return
		}
		group.Go(func() error {
			ctx := withPod(ctx, wanted)
			status, err := pc.backend.status(ctx, wanted)
			if err != nil {
				log.G(ctx).WithError(err).Warn("The provider cannot tell the status of a pod")
				return nil
			}
			pc.answered(r, status, since)
			return nil
		})
	})
	_ = group.Wait() // nothing returns an error
}

// answered takes the answer to a question about a pod's status, asked at a count of
// observations; nil means that the provider does not know the pod.
func (pc *Controller) answered(r *podRecord, status *corev1.PodStatus, since uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observation > since || status == nil && since < r.endSince {
		return // it was before what is known, or asked for
	}
	if status == nil {
		r.missed()
		r.inspectedAt = time.Now()
		pc.syncs.Add(r.key())
		return
	}
	r.found()
	pc.observed(r, status, since)
}

// behindPatience is for how long after a pod's creation lists may show the one before in its place: some take seconds to
// be up to date.
const behindPatience = time.Minute

// reappears has the provider asked about a pod that it did not know and shows now: it
// was overlooked, or it was given up, and is to be ended. One that was awaited is held, if this surely is it: by its UID,
// or as it was asked for late enough. shown is that pod. r.mu is held.
func (pc *Controller) reappears(r *podRecord, shown *corev1.Pod, asked time.Time, since uint64) {
	if r.orphan || r.observation > since || since < r.endSince {
		return
	}
	if r.observed == unknown && shown.Status.Phase != "" && r.coming(time.Now()) {
		if shown.UID == r.id || asked.Sub(r.createdAt) >= behindPatience { // it has come
			pc.recordHeld(r, shown, since)
			pc.statuses.Add(r.key())
		}
		pc.syncs.Add(r.key()) // its question is asked now, or not tried again
		return
	}
	switch ended := isTerminal(shown.Status.Phase); {
	case r.observed == absent && r.removed && (!ended || r.requested == requestedNone): // finalizers hold it
	case ended:
		return
	case r.observed == absent && r.requested == requestedNone && r.missing > 0:
	case r.observed == absent && r.requested != requestedNone && r.givenUp():
	case r.observed == held && r.stopped() && r.wasLost(): // once more
	default:
		return
	}
	if r.givenUp() {
		r.providerStatus = nil // it runs, no matter what was reported before
	}
	r.observed = unknown
	pc.syncs.Add(r.key())
}

// givenUp reports whether the record's pod has ended for the API, and stays there.
// r.mu is held.
func (r *podRecord) givenUp() bool {
	return r.pod.DeletionTimestamp == nil && (isTerminal(r.pod.Status.Phase) || r.ended())
}

// wasLost reports whether the record's pod counts as lost. r.mu is held.
func (r *podRecord) wasLost() bool {
	return r.desiredStatus != nil && r.desiredStatus.Phase == corev1.PodFailed && r.desiredStatus.Reason == StatusReasonNotFound ||
		r.pod.Status.Phase == corev1.PodFailed && r.pod.Status.Reason == StatusReasonNotFound
}
