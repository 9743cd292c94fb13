package nodeutil_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// What of the configuration keeps callers from being known is logged once.
func TestRefusalsAreExplained(t *testing.T) {
	client := (&reviewer{}).client(t)
	ca := newAuthority(t)
	unread, err := nodeutil.NewClusterClientCA(client)
	if err != nil {
		t.Fatal(err)
	}
	byCertificate := func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{ca.cert}}
	}
	byToken := func(r *http.Request) { r.Header.Set("Authorization", "Bearer rubbish") }
	const noCA, unreadCA, noCredentials = "no client CA is configured: see WithClientCA", "the client CA has not been read", "Refused a request without credentials"
	for name, test := range map[string]struct {
		opts   []nodeutil.WebhookAuthOption
		caller func(*http.Request)
		status int
		want   string // empty: nothing of these
	}{
		"a certificate, but no CA":             {caller: byCertificate, status: 401, want: noCA},
		"the same, where anybody is anonymous": {opts: []nodeutil.WebhookAuthOption{nodeutil.WithAnonymousAuth()}, caller: byCertificate, status: 403, want: noCA},
		"a CA that is not read":                {opts: []nodeutil.WebhookAuthOption{nodeutil.WithClientCA(unread)}, caller: byCertificate, status: 401, want: unreadCA},
		"a CA that has not signed it":          {opts: []nodeutil.WebhookAuthOption{nodeutil.WithClientCAFile(write(t, "ca.crt", newAuthority(t).pem))}, caller: byCertificate, status: 401},
		"a token that is refused":              {caller: byToken, status: 401},
		"nothing":                              {caller: func(*http.Request) {}, status: 401, want: noCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			auth, err := nodeutil.WebhookAuth(client, "vk", test.opts...)
			if err != nil {
				t.Fatal(err)
			}
			h := nodeutil.WithAuth(nodeutil.InstrumentAuth(auth), answering("hello"))
			logged := &infos{warnings: warnings{Logger: log.L}}
			for range 2 {
				r := httptest.NewRequest("GET", "/containerLogs/ns/p/c", nil)
				r = r.WithContext(log.WithLogger(testContext(t), logged))
				test.caller(r)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != test.status {
					t.Errorf("got %d, want %d", w.Code, test.status)
				}
			}
			for _, reason := range []string{noCA, unreadCA, noCredentials} {
				want := 0
				if reason == test.want {
					want = 1
				}
				if got := logged.count(reason); got != want {
					t.Errorf("%q is logged %d times, want %d", reason, got, want)
				}
			}
		})
	}
}

// infos are warnings and what is logged at level info.
type infos struct{ warnings }

func (i *infos) WithField(string, any) log.Logger { return i }
func (i *infos) Info(args ...any)                 { i.Warn(args...) }
