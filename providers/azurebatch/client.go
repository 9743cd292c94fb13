package azurebatch

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// newClient returns a client of the account, with the credentials of a complete
// configuration. transport, if it is not nil, connects to all servers. Package podgroup
// makes calls again.
func newClient(c *Config, transport policy.Transporter) (*azbatch.Client, error) {
	options := azcore.ClientOptions{
		Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{ApplicationID: "virtual-kubelet"},
		Cloud: map[string]cloud.Configuration{"AzurePublicCloud": cloud.AzurePublic, "AzureChinaCloud": cloud.AzureChina, "AzureUSGovernmentCloud": cloud.AzureGovernment}[c.Cloud],
	}
	credential, err := newCredential(c, options)
	if err != nil {
		return nil, err
	}
	if c.AccountKey != "" {
		key, err := base64.StdEncoding.DecodeString(c.AccountKey.Reveal())
		if err != nil {
			return nil, errors.New("accountKey: it is not base64")
		}
		options.PerRetryPolicies = []policy.Policy{&sharedKey{c.AccountName, key}}
	}
	return azbatch.NewClient(c.AccountEndpoint, scoped{credential, environments[c.Cloud].scope}, &azbatch.ClientOptions{ClientOptions: options})
}

// newCredential returns what calls are authenticated with, if it is not the account's key.
func newCredential(c *Config, options azcore.ClientOptions) (azcore.TokenCredential, error) {
	switch {
	case c.AccountKey != "":
		return noToken{}, nil
	case c.ClientSecret != "":
		return azidentity.NewClientSecretCredential(c.TenantID, c.ClientID, c.ClientSecret.Reveal(), &azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
	case c.FederatedTokenFile != "":
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, TenantID: c.TenantID, ClientID: c.ClientID, TokenFilePath: c.FederatedTokenFile, DisableInstanceDiscovery: true,
		})
	}
	o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if c.ClientID != "" {
		o.ID = azidentity.ClientID(c.ClientID)
	}
	return azidentity.NewManagedIdentityCredential(o)
}

// scoped requests tokens for the Batch service of a cloud: the client knows that of the
// public one only.
type scoped struct {
	azcore.TokenCredential
	scope string
}

// GetToken implements azcore.TokenCredential.
func (s scoped) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	o.Scopes = []string{s.scope}
	return s.TokenCredential.GetToken(ctx, o)
}

// noToken is the credential of a client whose calls are signed: the client demands one.
type noToken struct{}

// GetToken implements azcore.TokenCredential.
func (noToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "none", ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

// sharedKey signs requests with a key of the account.
type sharedKey struct {
	account string
	key     []byte
}

// signedHeaders are the headers in the text that is signed, in its order.
var signedHeaders = []string{
	"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
	"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
}

// Do implements policy.Policy.
func (s *sharedKey) Do(request *policy.Request) (*http.Response, error) {
	r := request.Raw()
	r.Header.Set("ocp-date", time.Now().UTC().Format(http.TimeFormat))
	text := r.Method
	for _, name := range signedHeaders {
		value := r.Header.Get(name)
		if name == "Content-Length" {
			if value = ""; r.ContentLength > 0 || r.Method == http.MethodPost { // which has the header without a body, too
				value = strconv.FormatInt(r.ContentLength, 10)
			}
		}
		text += "\n" + value
	}
	text += "\n" + canonicalized(r, s.account)
	sum := hmac.New(sha256.New, s.key)
	sum.Write([]byte(text))
	r.Header.Set("Authorization", "SharedKey "+s.account+":"+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	return request.Next()
}

// canonicalized returns the headers and the address in the form that is signed.
func canonicalized(r *http.Request, account string) string {
	var headers, params []string
	for name, values := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "ocp-") {
			headers = append(headers, name+":"+strings.Join(values, ",")+"\n")
		}
	}
	for name, values := range r.URL.Query() {
		slices.Sort(values)
		params = append(params, "\n"+strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(headers)
	slices.Sort(params)
	return strings.Join(headers, "") + "/" + account + r.URL.EscapedPath() + strings.Join(params, "")
}

// codes are the codes of Batch's errors.
var codes = podgroup.Codes{
	Throttled: []string{"TooManyRequests", "ServerBusy"},
	Exhausted: []string{"*QuotaReached", "PoolNotFound", "AccountIsDisabled"},
	Denied:    []string{"AuthenticationFailed*", "Insufficient*Permissions", "AuthorizationFailure", "PermissionDenied", "InvalidAuthenticationInfo"},
	Busy: []string{
		"TaskExists", "JobExists", "TaskCompleted", "Job*", "PoolBeing*", "Node*", "TaskFiles*", "OperationInvalid*", "OperationNotValid*", "ConditionNotMet", "UpdateConditionNotMet",
	},
	Missing: []string{"TaskNotFound", "FileNotFound", "TaskFileNotFound", "ResourceNotFound"},
	Away:    []string{"InternalError", "OperationTimedOut"},
	Refused: []string{
		"Invalid*", "Missing*", "Unsupported*", "OutOfRange*", "*TooLong", "*TooLarge", "PropertyNotFound", "*IdentityReference*", "Duplicate*", "TaskContainerSettings*",
	},
}

// maxErrorText is how much of Batch's text an error has.
const maxErrorText = 500

// classify returns err with its class. The text is Batch's message and what it names as the
// reason; values that were sent are left out, since they may be secret.
func classify(action podgroup.Action, err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok {
		status, code := "", ""
		if refused.RawResponse != nil {
			status, code = " with "+refused.RawResponse.Status, "AuthenticationFailed"
		}
		return codes.Classify(action, code, 0, 0, fmt.Errorf("cannot %s: Microsoft Entra ID refuses the node's credentials%s", action, status))
	}
	refusal, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok { // nobody has answered
		if odd, ok := errors.AsType[*url.Error](err); ok { // whose text has the address, and what it was asked for
			err = odd.Err
		}
		return codes.Classify(action, "", 0, 0, fmt.Errorf("cannot ask Azure Batch to %s: %w", action, err))
	}
	var wait time.Duration
	if refusal.RawResponse != nil {
		wait = podgroup.RetryAfter(refusal.RawResponse.Header)
	}
	return answer(action, refusal.ErrorCode, refusal.StatusCode, wait, messageOf(refusal.RawResponse))
}

// answer returns the error of an answer with a code.
func answer(action podgroup.Action, code string, status int, wait time.Duration, detail string) error {
	err := fmt.Errorf("cannot %s: Azure Batch answers %d %s: %s", action, status, code, detail[:min(len(detail), maxErrorText)])
	if code == "JobNotFound" {
		return errdefs.AsUnavailable(&jobGone{err})
	}
	err = codes.Classify(action, code, status, wait, err)
	if action == podgroup.ActionCreate && strings.HasPrefix(code, "Job") {
		return &jobClosed{err}
	}
	return err
}

// jobClosed is the error of a creation that the state of the job does not allow.
type jobClosed struct{ error }

// Unwrap returns the error with its class.
func (e *jobClosed) Unwrap() error { return e.error }

// jobGone is the error of a call for a job that does not exist.
type jobGone struct{ error }

// messageOf returns what Batch says of an error.
func messageOf(response *http.Response) string {
	if response == nil {
		return ""
	}
	body, err := runtime.Payload(response)
	var sent azbatch.Error
	if err != nil || json.Unmarshal(body, &sent) != nil {
		return http.StatusText(response.StatusCode)
	}
	return textOf(&sent)
}

// textOf returns the message of an error without the IDs of the request, and the reason.
func textOf(e *azbatch.Error) (text string) {
	if e.Message != nil {
		text, _, _ = strings.Cut(deref(e.Message.Value), "\n")
	}
	for _, v := range e.Values {
		if key := deref(v.Key); key == "Reason" || key == "PropertyName" {
			text += "; " + key + ": " + deref(v.Value)
		}
	}
	return strings.TrimSpace(text)
}

// deref returns what p points to, or the zero value.
func deref[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// same reports whether p is a value of the API, which writes some with capitals.
func same[T ~string](p *T, value T) bool {
	return p != nil && strings.EqualFold(string(*p), string(value))
}
