package huaweicci

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// The signatures are those of github.com/huaweicloud/huaweicloud-sdk-go-v3 v0.1.207,
// core/auth/signer, for the same requests.
func TestSignature(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		method, path, query, body string
		header                    http.Header
		securityToken             string
		headers, signature        string
	}{
		{
			method: http.MethodGet, path: "/apis/cci/v2/namespaces/default/pods", query: "labelSelector=a%3Db%2Cc%21%3Dd&limit=500",
			headers: "host;x-sdk-date", signature: "164d4f440841757119bc131d3f74126ced60dffee9730ad7926b4430b3ed9dfd",
		},
		{
			method: http.MethodPost, path: "/api/v1/namespaces/default/pods", query: "fieldManager=virtual-kubelet", body: `{"kind":"Pod"}`,
			header:  http.Header{headerProject: {"0123456789abcdef"}},
			headers: "host;x-project-id;x-sdk-date", signature: "1195396d2b3a074c6e4d3f27e80530cbadb08f19dc3007773965c50e85886341",
		},
		{
			method: http.MethodGet, path: "/apis/cci/v2/namespaces/default/pods/a.b/exec", query: "command=sh&command=-c&command=echo+%22%2B~%2A%22&stdout=true&container=",
			securityToken: "temporary",
			headers:       "host;x-sdk-date;x-security-token", signature: "1b8937b1ef4575b584a1d13afc4e74d45816c494e3d39f0554b2dfabff3bdae9",
		},
		{
			method: http.MethodDelete, path: "/api/v1/namespaces/default/pods/schön~ %41",
			headers: "host;x-sdk-date", signature: "81a59ee557d1985a14f80662e708c5db99b2a8a7ee64bb980b117e01f2a186c3",
		},
	} {
		request := &http.Request{Method: c.method, Header: c.header, URL: &url.URL{Scheme: "https", Host: "cci.cn-north-4.myhuaweicloud.com", Path: c.path, RawQuery: c.query}}
		if request.Header == nil {
			request.Header = http.Header{}
		}
		keys{"AKEXAMPLE", "SKexample/+=", c.securityToken}.sign(request, []byte(c.body), at)
		want := "SDK-HMAC-SHA256 Access=AKEXAMPLE, SignedHeaders=" + c.headers + ", Signature=" + c.signature
		if got := request.Header.Get("Authorization"); got != want {
			t.Errorf("%s %s:\n%s, want\n%s", c.method, c.path, got, want)
		}
		if strings.Contains(request.Header.Get("Authorization"), "SKexample") {
			t.Error("the secret is in the header")
		}
	}
}
