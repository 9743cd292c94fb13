package node

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

// ResourceClaimPreparer is implemented by a provider that prepares the devices of
// resource claims (dynamic resource allocation). On the nodes of others pods with
// claims are rejected, as they would run without their devices.
type ResourceClaimPreparer interface {
	// PreparesResourceClaims reports whether CreatePod prepares the claims of a pod.
	// It does not block, and does not change the pod.
	PreparesResourceClaims(pod *corev1.Pod) bool
}

// admitter decides whether pods may run on the node, before the provider is asked.
type admitter struct {
	node     func(ctx context.Context, fresh bool) (*corev1.Node, error)
	prepares func(*corev1.Pod) bool // resource claims
	begin    sync.Once
	ledger   admission.Ledger
}

// newAdmitter returns nil if nothing is known of the node: then all pods may run.
func newAdmitter(cfg *PodControllerConfig) *admitter {
	if cfg.Node == nil {
		return nil
	}
	a := &admitter{node: cfg.Node, prepares: func(*corev1.Pod) bool { return false }}
	if preparer, ok := cfg.Provider.(ResourceClaimPreparer); ok {
		a.prepares = preparer.PreparesResourceClaims
	}
	return a
}

// admit reports whether a pod that was not created yet may run on the node. One that
// was admitted stays so, however often its creation fails. One that is rejected is
// Failed, with an event, so that its controller replaces it. An error means that the
// decision has to wait.
func (pc *PodController) admit(ctx context.Context, key string, r *podRecord, pod *corev1.Pod) (bool, error) {
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
	pc.say(key, r, pod, status)
	return false, nil
}

func (pc *PodController) rejection(ctx context.Context, pod *corev1.Pod) (*admission.Rejection, error) {
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
// run first, whatever the room, and then the older ones before the younger.
func (pc *PodController) admitFirst(ctx context.Context, node *corev1.Node) {
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
func (pc *PodController) recount(ctx context.Context) (pods []*corev1.Pod) {
	for _, pod := range pc.pods.List() {
		if pc.owns(ctx, pod) && !isTerminal(pod.Status.Phase) && !pc.hasStopped(pod) {
			pods = append(pods, pod)
		}
	}
	pc.admission.ledger.Recount(pods, pc.wasAdmitted)
	return pods
}

// hasStopped reports whether the provider has reported that a pod runs no more.
func (pc *PodController) hasStopped(pod *corev1.Pod) bool {
	r := pc.records.get(keyOf(pod))
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uid() == pod.UID && (r.stopped() || r.report != nil && isTerminal(r.report.Phase))
}

// wasAdmitted reports whether a pod was admitted by this process or one before it: all
// that such pods show has a start time.
func (pc *PodController) wasAdmitted(pod *corev1.Pod) bool {
	if pod.Status.StartTime != nil || pod.Status.Phase == corev1.PodRunning {
		return true
	}
	r := pc.records.get(keyOf(pod))
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uid() == pod.UID && (r.ran || r.provider == held)
}
