package translate

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MayBeAdmission reports whether err, by which the remote API server rejects an object, may
// be the word of admission, which may admit it later. The code does not distinguish it: that
// of a webhook is 400 unless the webhook sets another, with any reason and causes, and that
// of a ValidatingAdmissionPolicy 422, which names no field.
func MayBeAdmission(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	status := answer.Status()
	switch {
	case strings.HasPrefix(status.Message, "admission webhook "):
		return true
	case status.Reason == metav1.StatusReasonInvalid:
		return status.Details == nil || !slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
	}
	return status.Reason != metav1.StatusReasonBadRequest
}
