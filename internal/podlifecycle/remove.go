package podlifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// removePod removes a pod from the API whose end was asked for and has come.
func (pc *Controller) removePod(ctx context.Context, key string) (err error) {
	r, pod, err := pc.recordInAPI(ctx, key)
	if err != nil || pod == nil {
		return err
	}
	// Things may have moved on since the key was added.
	if decide(pc.view(r, pod)).verb != doRemove {
		pc.syncs.Add(key)
		return nil
	}
	if pc.lastStatusFirst(r, pod) {
		pc.statuses.Add(key) // which leads back here
		return nil
	}
	if !pc.cfg.Claim.MayGoOn() {
		pc.removals.AddAfter(key, claimInterval)
		return nil
	}
	ctx, span := startPodSpan(r.continueTrace(ctx), "removePod", pc.removals, key, pod)
	defer span.End()
	defer func() { span.SetStatus(err) }()

	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err = pc.cfg.PodClient.Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
	if err != nil && !apierror.IsNotFound(err) {
		// A conflict too: if another pod has the name by now the watch will tell,
		// and the next try sees it; if not, it says nothing about this one's end.
		return fmt.Errorf("cannot remove pod %s from the API: %w", r.name, err)
	}
	r.mu.Lock()
	r.removed = true
	r.mu.Unlock()
	log.G(ctx).Info("Removed pod from the API")
	return nil
}

// lastStatusFirst reports whether the API is to have the last status of a pod before
// the pod leaves it. Where the provider does not know how it ended, only a pod that
// stays for those who hold it gets one, a Job's say: its controller goes by it.
func (pc *Controller) lastStatusFirst(r *podRecord, pod *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endIsKnown() || len(pod.Finalizers) > 0 && !isTerminal(pod.Status.Phase) {
		r.conclude(pod)
	}
	r.removing = r.awaitsLastStatus()
	return r.removing
}
