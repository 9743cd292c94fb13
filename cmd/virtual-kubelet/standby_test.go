package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// matching is written lines to, and sends what the pattern finds in the first of them.
type matching struct {
	pattern *regexp.Regexp
	found   chan<- string
}

func (m matching) Write(line []byte) (int, error) {
	if found := m.pattern.FindSubmatch(line); found != nil {
		select {
		case m.found <- string(found[1]):
		default:
		}
	}
	return len(line), nil
}

// neverSigns is an API server that takes requests for certificates, and signs none. The
// channel is closed when one is waited for.
func neverSigns(t *testing.T) (url string, waited <-chan struct{}) {
	t.Helper()
	waits := make(chan struct{})
	begun := sync.OnceFunc(func() { close(waits) })
	answer := func(w http.ResponseWriter, status int, object any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(object)
	}
	list := certificatesv1.CertificateSigningRequestList{}
	list.APIVersion, list.Kind = "certificates.k8s.io/v1", "CertificateSigningRequestList"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			var request certificatesv1.CertificateSigningRequest
			body, err := io.ReadAll(r.Body)
			if err == nil {
				_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &request)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			request.APIVersion, request.Kind, request.UID = list.APIVersion, "CertificateSigningRequest", "u"
			answer(w, http.StatusCreated, request)
		case r.URL.Query().Has("watch"):
			begun()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/certificatesigningrequests"):
			begun()
			answer(w, http.StatusOK, list)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, waits
}

// A process whose client certificate waits to be approved is alive and not ready, and its
// metrics tell that it waits.
func TestMetricsWhileACertificateIsNotSigned(t *testing.T) {
	noCluster(t)
	server, waited := neverSigns(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "`+server+`"}}]
users: [{name: u, user: {token: t}}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	address := make(chan string, 1)
	command := newRootCommand(os.Getenv)
	command.SetArgs([]string{"--provider", "mock", "--bootstrap-kubeconfig", file, "--cert-dir", t.TempDir(), "--metrics-addr", "127.0.0.1:0"})
	command.SetOut(io.Discard)
	command.SetErr(matching{regexp.MustCompile(`Serving metrics.*address="?([0-9.:]+)`), address})
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	select {
	case <-waited:
	case err := <-ended:
		ended <- nil
		t.Fatalf("the process has ended: %v", err)
	}
	var base string
	select {
	case at := <-address:
		base = "http://" + at
	case <-ctx.Done():
		t.Fatal("the metrics are not served while the certificate waits to be approved")
	}
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/healthz": {http.StatusOK, "ok"},
		"/livez":   {http.StatusOK, "ok"},
		"/readyz":  {http.StatusInternalServerError, "[-]started"},
		"/metrics": {http.StatusOK, "\nvk_certificate_request_age_seconds{certificate=\"client\"} "},
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != want.status || !strings.Contains(string(body), want.says) {
			t.Errorf("%s: got %d %.300s, %v, want %d with %q", path, response.StatusCode, body, err, want.status, want.says)
		}
		if path == "/metrics" && strings.Contains(string(body), want.says+"0\n") {
			t.Error("the metrics do not have the age of the request")
		}
	}
}
