package podlifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
)

// forbiddenPatience is for how long the API server may refuse a pod's last status as
// forbidden, which it does for some seconds after its start, before the pod is removed
// without.
const forbiddenPatience = time.Minute

// The last status of a pod that is being deleted says how it ended, as far as the
// provider knows. It is in the API before the pod leaves it, since workflow engines and
// CI runners, which watch pods, go by it.

// endIsKnown reports whether it is known how the record's pod has ended: the provider has reported that it stopped; or does
// not know the pod any more, as its deletion asked for, and has reported no more than how its containers had ended. r.mu
// is held.
func (r *podRecord) endIsKnown() bool {
	return r.stopped() || r.requested != requestedNone && r.observed == absent &&
		r.providerStatus != nil && allTerminated(r.providerStatus)
}

// conclude makes the report on the record's pod, which is not there any more as its
// deletion asked for, one of how it ended. r.mu is held.
func (r *podRecord) conclude(pod *corev1.Pod) {
	if !r.ended() {
		r.desire(killed(pod, r.desiredStatus, time.Now()))
	}
}

// awaitsLastStatus reports whether the API lacks the last status of the record's pod,
// and may still take it. r.mu is held.
func (r *podRecord) awaitsLastStatus() bool {
	return r.ended() && r.desiredStatus != r.sent && r.desiredStatus != r.refused
}

// refuse records that the API did not take a report, and keeps one that it never
// will. r.mu is held.
func (r *podRecord) refuse(report *corev1.PodStatus, err error) {
	switch {
	case apierror.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		r.refused = report
	case !apierrors.IsForbidden(err):
		r.forbidden = time.Time{}
	case r.forbidden.IsZero():
		r.forbidden = time.Now()
	case time.Since(r.forbidden) >= forbiddenPatience:
		r.refused = report
	}
}
