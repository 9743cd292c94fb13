package aci

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

func TestClassifyWithoutAnswer(t *testing.T) {
	refused := &azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: http.StatusUnauthorized, Status: "401 Unauthorized"}}
	err := classify(podgroup.ActionList, refused)
	if delay, ok := errdefs.RetryAfter(err); !ok || delay < time.Minute || errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "refuses the credentials") {
		t.Errorf("credentials that are refused: %v", err)
	}
	if err := classify(podgroup.ActionCreate, errors.New("no route to host")); !errdefs.IsUnavailable(err) {
		t.Errorf("nobody answers: %v", err)
	}
}

// Errors of the configuration harm no pod: they are tried again, for a person cures them.
func TestClassifyMistakesOfTheConfiguration(t *testing.T) {
	for code, permanent := range map[string]bool{
		"InvalidSubscriptionId": false, "InvalidApiVersionParameter": false, "InvalidResourceType": false, "InvalidResourceNamespace": false,
		"NoRegisteredProviderFound": false, "SubscriptionNotFound": false, "LocationNotAvailableForResourceType": false,
		"InvalidImageName": true, "InvalidEnvironmentVariable": true,
	} {
		response := &http.Response{StatusCode: http.StatusBadRequest, Body: io.NopCloser(strings.NewReader(`{"error": {"code": "` + code + `", "message": "no"}}`))}
		err := classify(podgroup.ActionCreate, &azcore.ResponseError{StatusCode: http.StatusBadRequest, ErrorCode: code, RawResponse: response})
		if delay, _ := errdefs.RetryAfter(err); errdefs.IsPermanent(err) != permanent || !permanent && delay < time.Minute {
			t.Errorf("%s: %v, again after %s", code, err, delay)
		}
	}
}
