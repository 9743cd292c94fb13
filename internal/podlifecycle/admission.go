package podlifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/admission"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// admitter decides whether pods may run on the node, before the provider is asked.
type admitter struct {
	node     func(ctx context.Context, fresh bool) (*corev1.Node, error)
	prepares func(*corev1.Pod) bool // resource claims
	begin    sync.Once
	ledger   admission.Ledger
}

// newAdmitter returns nil if nothing is known of the node: then all pods may run.
func newAdmitter(cfg *Config) *admitter {
	if cfg.Node == nil {
		return nil
	}
	a := &admitter{node: cfg.Node, prepares: func(*corev1.Pod) bool { return false }}
	if preparer, ok := cfg.Provider.(claimPreparer); ok {
		a.prepares = preparer.PreparesResourceClaims
	}
	return a
}

// admit reports whether a pod that was not created yet may run on the node. One that
// was admitted stays so, however often its creation fails. One that is rejected is
// Failed, with an event, so that its controller replaces it. An error means that the
// decision has to wait.
func (pc *Controller) admit(ctx context.Context, r *podRecord, pod *corev1.Pod) (bool, error) {
	rejection, err := pc.rejection(ctx, pod)
	if err != nil || rejection == nil {
		return err == nil, err
	}
	log.G(ctx).WithField("reason", rejection.Reason).Info("Rejected pod")
	pc.warn(ctx, r, pod, rejection.Reason, rejection.Message)
	status := pod.Status.DeepCopy()
	status.Phase = corev1.PodFailed
	status.Reason, status.Message = rejection.Reason, "Pod was rejected: "+rejection.Message
	status.ContainerStatuses = nil // nothing ran
	pc.decideStatus(r, pod, status)
	return false, nil
}

func (pc *Controller) rejection(ctx context.Context, pod *corev1.Pod) (*admission.Rejection, error) {
	a := pc.admission
	if a == nil || a.ledger.Has(pod.UID) {
		return nil, nil
	}
	if !a.prepares(pod) {
		if rejection := admission.Claims(pod); rejection != nil {
			return rejection, nil
		}
	}
	node, err := a.read(ctx, false)
	if err != nil {
		return nil, err
	}
	a.begin.Do(func() { pc.admitFirst(ctx, node) })
	if a.ledger.Admit(pod, node) == nil {
		if a.ledger.Len() > 2*pc.records.len()+100 {
			pc.recount(ctx) // most of them have gone
		}
		return nil, nil
	}
	// Before a pod is rejected, those are left out that have ended, and the API server
	// is asked: it may have a change of the node that the scheduler has seen and we
	// have not.
	pc.recount(ctx)
	if node, err = a.read(ctx, true); err != nil {
		return nil, err
	}
	return a.ledger.Admit(pod, node), nil
}

func (a *admitter) read(ctx context.Context, fresh bool) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("the API server has not answered in %v", readTimeout))
	defer cancel()
	node, err := a.node(ctx, fresh)
	switch {
	case err != nil:
		// Not of the class of what failed: it is not the pod that was not found.
		return nil, errdefs.AsUnavailable(fmt.Errorf("cannot admit the pod, since its node is not known: %v", err))
	case node == nil:
		return nil, errdefs.AsUnavailable(fmt.Errorf("cannot admit the pod before its node is registered"))
	}
	return node, nil
}

// admitFirst admits the pods that there are when the first is about to be: those that
// run first, even without room, and then the older ones before the younger.
func (pc *Controller) admitFirst(ctx context.Context, node *corev1.Node) {
	pods := pc.recount(ctx)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && (pc.admission.prepares(pod) || admission.Claims(pod) == nil) {
			pc.admission.ledger.Admit(pod, node)
		}
	}
}

// recount counts the pods that take something of the node, and returns those that do
// or may come to: as for the scheduler, those of the API that have not ended.
func (pc *Controller) recount(ctx context.Context) (pods []*corev1.Pod) {
	for _, pod := range pc.cfg.Pods.List() {
		if pc.cfg.PodEventFilter(ctx, pod) && !isTerminal(pod.Status.Phase) && !pc.hasStopped(pod) {
			pods = append(pods, pod)
		}
	}
	pc.admission.ledger.Recount(pods, pc.wasAdmitted)
	return pods
}

// hasStopped reports whether the provider has reported that a pod runs no more.
func (pc *Controller) hasStopped(pod *corev1.Pod) bool {
	r := pc.records.get(pod.UID)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped() || r.ended()
}

// wasAdmitted reports whether a pod was admitted by this process or one before it: all
// that such pods show has a start time.
func (pc *Controller) wasAdmitted(pod *corev1.Pod) bool {
	if pod.Status.StartTime != nil || pod.Status.Phase == corev1.PodRunning {
		return true
	}
	r := pc.records.get(pod.UID)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ran || r.observed == held
}
