package podlifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// DefaultLostPodTimeout is for how long the provider has to miss a pod that it ran
	// before the pod counts as lost.
	DefaultLostPodTimeout = time.Minute
	// massLoss is how many pods have to be missing at once, and more than are there,
	// for the provider to be taken for sick. Fewer are pods that were lost: a node of
	// one or two pods would else never notice it.
	massLoss = 3
	// censusInterval is for how long a count of the pods is good.
	censusInterval = time.Second
	// reviewInterval is how often it is seen whether a mass loss is over.
	reviewInterval = 5 * time.Second
)

// census counts the pods that are to run, and did or may do so, by what is known of them.
type census struct {
	held    int // by the provider
	missing int // it was asked, and does not know them
	unsure  int // it cannot be asked at the moment
}

func (c census) all() int { return c.held + c.missing + c.unsure }

// suspicious reports whether as many pods may be missing as make the provider sick.
func (c census) suspicious() bool {
	away := c.missing + c.unsure
	return away >= massLoss && away > c.held
}

// massLoss reports whether so many pods are missing at once that the provider is
// taken for sick.
func (c census) massLoss() bool { return c.missing >= massLoss && c.missing > c.held }

// lossGuard keeps pods from being taken for lost while so many are missing at once
// that it is rather the provider that is sick: one that has just started and answers
// with nothing, say. It acts from the moment at which the first of them would be lost
// until most of them are there again, or were deleted. The others then get the whole
// time once more.
type lossGuard struct {
	mu      sync.Mutex
	counted time.Time
	census  census
	acting  bool
	ended   time.Time // when it last acted

	reviews sync.Mutex // held while its beginning or its end is reported
	wait    func()     // for the last of the reviews to end; nil if there was none
}

// counts returns whether a record's pod is one of the census, and how.
func (r *podRecord) counts(c *census) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isToEnd() || !r.ran && !r.begun && r.pod.Status.Phase != corev1.PodRunning {
		return
	}
	switch r.observed {
	case held:
		c.held++
	case absent:
		if !r.ignored() {
			c.missing++
		}
	default:
		if !r.coming(time.Now()) { // of which nothing can be known yet, or which the provider ignores
			c.unsure++
		}
	}
}

// ignored reports whether the pod, which the provider does not know, seems to be one that it has accepted and ignored, as
// some do with those of DaemonSets, of which each node has some: this process has had it created, and it was never shown.
// r.mu is held.
func (r *podRecord) ignored() bool {
	owner := metav1.GetControllerOfNoCopy(r.pod)
	return r.ran && owner != nil && owner.Kind == "DaemonSet" && r.providerStatus == nil && r.pod.Status.Phase != corev1.PodRunning
}

// askAgain has the provider asked once more before the pod is taken for lost.
func (r *podRecord) askAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = min(r.missing, lostAfter-1)
}

// count returns the census, which may be a moment old.
func (pc *Controller) count(now time.Time) census {
	g := &pc.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if age := now.Sub(g.counted); age >= 0 && age < censusInterval {
		return g.census
	}
	var c census
	pc.records.each(func(r *podRecord) { r.counts(&c) })
	g.counted, g.census = now, c
	return c
}

// guards completes the view of a pod that missesPod is about.
func (pc *Controller) guards(v *view) {
	suspicious := pc.count(v.now).suspicious()
	pc.guard.mu.Lock()
	defer pc.guard.mu.Unlock()
	v.suspicious = suspicious || pc.guard.acting // until its end is noticed
	if pc.guard.ended.After(v.missedAt) {
		v.missedAt = pc.guard.ended
	}
}

// guardPods has the node say that many pods are missing, which are not taken for lost nor
// created again, and look for the end of that. ran is whether the pod did.
func (pc *Controller) guardPods(ctx context.Context, r *podRecord, pod *corev1.Pod, ran bool) {
	c := pc.count(time.Now())
	if !c.massLoss() {
		return // what is not known yet will be soon
	}
	message := missingMessage
	if !ran {
		message = pendingMissingMessage
	}
	pc.warn(ctx, r, pod, ReasonProviderMissing, message)
	g := &pc.guard
	g.reviews.Lock()
	defer g.reviews.Unlock()
	g.mu.Lock()
	began := !g.acting
	g.acting = true
	g.mu.Unlock()
	if !began {
		return
	}
	node := pod.Spec.NodeName
	pc.reportMissing(ctx, node, c)
	if g.wait != nil {
		g.wait() // its last review is over, or about to be
	}
	g.wait = pc.every(reviewInterval, func(ctx context.Context) time.Duration {
		if pc.reviewLoss(ctx, node) {
			return -1
		}
		return reviewInterval
	})
}

// reviewLoss ends the guard if the mass loss is over, and reports whether it is.
func (pc *Controller) reviewLoss(ctx context.Context, node string) (over bool) {
	g := &pc.guard
	g.reviews.Lock()
	defer g.reviews.Unlock()
	c := pc.count(time.Now())
	g.mu.Lock()
	over = !c.suspicious()
	if over {
		g.acting, g.ended = false, time.Now()
	}
	g.mu.Unlock()
	if over {
		pc.reportMissing(ctx, node, census{held: c.all()})
	}
	return over
}

// stopReviews returns when no review runs any more, once the context of Run has ended.
func (g *lossGuard) stopReviews() {
	g.reviews.Lock()
	wait := g.wait
	g.reviews.Unlock()
	if wait != nil {
		wait()
	}
}

// reportMissing records in an event of the Node, and the log, how many pods are missing.
func (pc *Controller) reportMissing(ctx context.Context, node string, c census) {
	condition := podsMissingCondition(c.missing, c.all())
	kind := corev1.EventTypeWarning
	if c.missing > 0 {
		log.G(ctx).WithField("node", node).WithField("missing", c.missing).WithField("pods", c.all()).Error("The provider does not know many of the node's pods; none of them is taken for lost")
	} else {
		kind = corev1.EventTypeNormal
		log.G(ctx).WithField("node", node).WithField("pods", c.all()).Info("The provider knows most of the node's pods again")
	}
	pc.cfg.EventRecorder.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, kind, condition.Reason, condition.Message)
}

// ConditionPodsMissing is the type of the Node condition that is True while the provider
// does not know many of the node's pods, which are not taken for lost.
const ConditionPodsMissing corev1.NodeConditionType = "PodsMissing"

// condition returns the node condition about missing pods.
func (g *lossGuard) condition() corev1.NodeCondition {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.acting {
		return podsMissingCondition(0, 0)
	}
	return podsMissingCondition(g.census.missing, g.census.all())
}

func podsMissingCondition(missing, of int) corev1.NodeCondition {
	if missing == 0 {
		return corev1.NodeCondition{Type: ConditionPodsMissing, Status: corev1.ConditionFalse, Reason: ReasonPodsFound,
			Message: "the provider knows most of the node's pods"}
	}
	return corev1.NodeCondition{Type: ConditionPodsMissing, Status: corev1.ConditionTrue, Reason: ReasonPodsMissing,
		Message: fmt.Sprintf("the provider does not know %d of the node's %d pods; they stay as they are until it knows them again or they are deleted", missing, of)}
}
