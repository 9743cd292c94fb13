package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// removePod removes a pod from the API whose end was asked for and has come.
func (pc *PodController) removePod(ctx context.Context, key string) (err error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil // made by keyOf: cannot happen, and a retry would not help
	}
	r := pc.records.get(key)
	if r == nil {
		return nil
	}
	pod, err := pc.podInAPI(ctx, namespace, name)
	if err != nil || pod == nil {
		return err
	}
	// Things may have moved on since the key was added.
	if v := pc.view(r, pod); v.heldUID != v.uid || decide(v).verb != doRemove {
		pc.syncs.Add(key)
		return nil
	}
	if pc.lastStatusFirst(r, pod) {
		pc.statuses.Add(key) // which leads back here
		return nil
	}
	if !pc.claim.MayGoOn() {
		pc.removals.AddAfter(key, claimPoll)
		return nil
	}
	ctx, span := startPodSpan(r.follows(ctx), "removePod", pc.removals, key, pod)
	defer span.End()
	defer func() { span.SetStatus(err) }()

	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err = pc.client.Pods(namespace).Delete(ctx, name, *options)
	if err != nil && !errdefs.IsOnlyNotFound(err) {
		// A conflict too: if another pod has the name by now the watch will tell,
		// and the next try sees it; if not, it was no word on this one's end.
		return fmt.Errorf("cannot remove pod %s from the API: %w", key, err)
	}
	r.mu.Lock()
	if r.uid() == pod.UID {
		r.removed = true
	}
	r.mu.Unlock()
	log.G(ctx).Info("Removed pod from the API")
	return nil
}

// lastStatusFirst reports whether the API is to have the last status of a pod before
// the pod leaves it. Where the provider does not know how it ended, only a pod that
// stays for those who hold it gets one, a Job's say: its controller goes by it.
func (pc *PodController) lastStatusFirst(r *podRecord, pod *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped() {
		r.conclude(pod, time.Now())
	} else if len(pod.Finalizers) > 0 && !isTerminal(pod.Status.Phase) && (r.report == nil || !isTerminal(r.report.Phase)) {
		r.tell(killed(pod, r.report, time.Now()))
	}
	r.removing = r.awaitsLastStatus()
	return r.removing
}
