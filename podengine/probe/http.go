package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxRedirects is how many redirects on the same host are followed.
const maxRedirects = 10

func (p *Prober) probeHTTP(ctx context.Context, target Target, action *corev1.HTTPGetAction, timeout time.Duration) (Outcome, string, error) {
	request, err := newRequest(ctx, target, action, "kube-probe/"+p.version)
	if err != nil {
		return Unknown, "", err
	}
	client := &http.Client{Transport: p.http, Timeout: timeout, CheckRedirect: staysOnHost}
	response, err := client.Do(request)
	if err != nil {
		return Failure, err.Error(), nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	if err != nil {
		return Failure, err.Error(), nil
	}
	switch code := response.StatusCode; {
	case code < 200 || code >= 400:
		return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", code), nil
	case code >= 300: // the redirect was not followed
		return Warning, fmt.Sprintf("Probe terminated redirects, Response body: %s", body), nil
	default:
		return Success, string(body), nil
	}
}

// staysOnHost follows redirects to the host that was asked. Another host's
// health is not the container's, so that such a redirect is the answer.
func staysOnHost(request *http.Request, via []*http.Request) error {
	if request.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

func newRequest(ctx context.Context, target Target, action *corev1.HTTPGetAction, userAgent string) (*http.Request, error) {
	address, err := target.address(action.Host, action.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(action.Path)
	if err != nil { // not a URL's path, but one that a server may still know
		u = &url.URL{Path: action.Path}
	}
	u.Scheme = strings.ToLower(cmp.Or(string(action.Scheme), "http"))
	u.Host, u.Opaque = address, ""
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	setHeaders(request, action.HTTPHeaders, userAgent)
	return request, nil
}

// setHeaders sets the headers of a request. An empty User-Agent or Accept takes
// away ours.
func setHeaders(request *http.Request, headers []corev1.HTTPHeader, userAgent string) {
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Host") {
			request.Host = h.Value
			continue
		}
		request.Header.Add(h.Name, h.Value)
	}
	if _, ok := request.Header["User-Agent"]; !ok {
		request.Header.Set("User-Agent", userAgent)
	}
	if accept, ok := request.Header["Accept"]; !ok {
		request.Header.Set("Accept", "*/*")
	} else if strings.Join(accept, "") == "" {
		request.Header.Del("Accept")
	}
}
