// Package apierror distinguishes the answers of an API server from those of something before
// it: a proxy, an ingress, a load balancer. client-go gives both the same status
// reasons, and a 404 of a proxy, which answers so for a while during its own
// deployment, is no word on an object.
package apierror

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// IsNotFound reports whether err is the word of an API server that an object does not
// exist, or an error of class NotFound that comes from no API server, and nothing else
// went wrong. It is false for nil.
func IsNotFound(err error) bool {
	return errdefs.IsOnlyNotFound(err) && !isUnexpected(err)
}

// IsRejected reports whether err is the word of an API server that a request is malformed,
// or the object in it not valid. Admission may have answered so, and may admit the object
// later. It is false for nil.
func IsRejected(err error) bool {
	return (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) && !isUnexpected(err)
}

// isUnexpected reports whether the answer was none of an API server, by its content.
func isUnexpected(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// OrUnavailable returns err, or, if it was no answer of an API server, an error of
// class Unavailable with its text alone: nothing is known of the object then.
func OrUnavailable(err error) error {
	if isUnexpected(err) {
		return errdefs.AsUnavailable(errors.New(err.Error()))
	}
	return err
}
