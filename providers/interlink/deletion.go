package interlink

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
)

// refusalPatience is for how long the deletion of a pod that has ended is asked for again.
const refusalPatience = time.Minute

// Delete implements podgroup.Backend.
func (b *backend) Delete(ctx context.Context, u *podgroup.Unit, grace time.Duration) error {
	known, ok := u.Data.(*corev1.Pod)
	if !ok {
		known = &corev1.Pod{}
		known.Namespace, known.Name, known.UID = u.Owner.Namespace, u.Owner.Name, u.Owner.UID
	}
	pod, seconds := sentPod(known), int64(grace/time.Second)
	pod.DeletionGracePeriodSeconds = &seconds
	b.deleted.add(pod.UID)
	err := b.Do(ctx, call(podgroup.ActionDelete, http.MethodDelete, "/delete", pod, podgroup.EnvSecrets(pod)...), nil)
	if rest.StatusOf(err) == http.StatusNotFound {
		if _, err := b.ping(ctx); err != nil { // the answer is that of something before the server
			return errdefs.AsUnavailable(err)
		}
	}
	if rest.StatusOf(err) != http.StatusNotFound && mayBeOnePods(err) {
		return b.afterRefusal(ctx, known, err)
	}
	return err
}

// afterRefusal returns what the refusal of a deletion comes to, by the status of the pod. The Slurm plugin
// fails for a pod that it does not know, and for a job that has ended so long ago that Slurm does not know
// it any more. That a status is missing says less: some plugins leave it out, or answer 404, also when they
// cannot ask their service.
func (b *backend) afterRefusal(ctx context.Context, pod *corev1.Pod, refusal error) error {
	wait := b.untilStatusesAreClear(pod)
	found, unknown, err := b.ask(ctx, []*corev1.Pod{pod})
	switch {
	case err != nil:
	case unknown[pod.UID] && wait <= 0:
		return errdefs.NotFoundf("interLink does not know the pod: %v", refusal)
	case len(found) > 0 && found[0].Over():
		if since := b.refused.addOnce(pod.UID); time.Since(since) >= refusalPatience {
			log.G(ctx).WithError(refusal).Warn("The pod has ended, and interLink does not delete what is left of it")
			return nil
		}
	}
	return refusal
}
