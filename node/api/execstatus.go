package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// What failed, in the kubelet's words.
const (
	failedExec   = "error executing command in container: "
	failedAttach = "error attaching to container: "
)

// execStatus is the result that the protocols since version 4 send. failed is
// what a failure is one of: failedExec or failedAttach.
func execStatus(err error, failed string) metav1.Status {
	code, exited := exitCode(err)
	switch {
	case err == nil || exited && code == 0:
		return metav1.Status{Status: metav1.StatusSuccess}
	case exited:
		return metav1.Status{
			Status: metav1.StatusFailure,
			Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(code)},
			}},
			Message: "command terminated with non-zero exit code: " + errorText(err),
		}
	default:
		return apierrors.NewInternalError(errors.New(failed + failureText(err))).Status()
	}
}

// failureText is errorText without what a kubelet or a runtime, to which the provider
// may have passed the session on, has put before it in the same way.
func failureText(err error) string {
	text := errorText(err)
	for _, failed := range []string{failedExec, failedAttach} {
		if cause, ok := strings.CutPrefix(text, apierrors.NewInternalError(errors.New(failed)).Error()); ok {
			return cause
		}
	}
	return text
}

// writeStatus sends the client how it ended: as JSON, or, where the protocol
// has not got that yet, with the message of a failure.
func writeStatus(w io.Writer, asJSON bool, err error, failed string) {
	status := execStatus(err, failed)
	text := []byte(status.Message)
	if asJSON {
		text, _ = json.Marshal(status)
	}
	if len(text) > 0 {
		_, _ = w.Write(text)
	}
}

// errorText is err.Error for errors whose method may panic, as that of
// k8s.io/utils/exec's CodeExitError without an Err does.
func errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T", err)
		}
	}()
	return err.Error()
}
