package fault

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reasons are those that the API server gives with a status code.
var reasons = map[int]metav1.StatusReason{
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusGone:                metav1.StatusReasonExpired,
}

// answer is what an API server says that refuses a request, with the number of
// seconds after which to try again if that is not 0.
func answer(request *http.Request, code, retryAfter int) *http.Response {
	if request.Body != nil {
		_ = request.Body.Close()
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reasons[code],
		Message:  http.StatusText(code) + ", by a fault",
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(retryAfter))
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)}
	}
	body, _ := json.Marshal(status) // strings and numbers: never fails
	return &http.Response{
		Status:        strconv.Itoa(code) + " " + http.StatusText(code),
		StatusCode:    code,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       request,
	}
}
