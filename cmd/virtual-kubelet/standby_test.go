package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
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
		if path == "/metrics" && strings.Contains(string(body), "\nvk_nodes{") {
			t.Error("the metrics have nodes: VirtualKubeletNotStarted does not fire")
		}
		if path == "/metrics" && strings.Contains(string(body), want.says+"0\n") {
			t.Error("the metrics do not have the age of the request")
		}
	}
}

// Of two processes of a node with one --metrics-addr the second waits for the end of the
// first, and serves the metrics from then on. A port that is in use by others is an error
// then, and an address that is wrong at once.
func TestTwoProcessesWithOneMetricsAddr(t *testing.T) {
	noCluster(t)
	client := fake.NewSimpleClientset()
	type process struct {
		early     net.Addr      // where the metrics were served before there was a node
		has, says <-chan string // the node, and where it serves the metrics
		ended     <-chan error
		stop      context.CancelFunc
	}
	start := func(id, address string) process {
		ctx, cancel := context.WithCancel(t.Context())
		has, says, ended := make(chan string, 1), make(chan string, 1), make(chan error, 1)
		lines := io.MultiWriter(matching{regexp.MustCompile(`msg="(Starting node)"`), has}, matching{regexp.MustCompile(`Serving metrics.*address="?([0-9.:]+)`), says})
		group, ctx := errgroup.WithContext(log.WithLogger(ctx, log.FromSlog(slog.New(slog.NewTextHandler(lines, nil)))))
		o := parsed(t, "--provider", "mock", "--nodename", "vk", "--listen-address", "127.0.0.1", "--port", "0", "--metrics-addr", address)
		o.identity = node.Identity{ID: id}
		v := virtualNode{options: o, client: client, address: "127.0.0.1", auth: headerAuth{}, standby: newStandby()}
		var err error
		if v.metrics, err = o.newMetricsPort(ctx, group, v.standby); err != nil {
			t.Fatal(err)
		}
		early := v.metrics.serving
		group.Go(func() error { return v.run(ctx, time.Now()) })
		go func() { ended <- group.Wait() }()
		return process{early, has, says, ended, cancel}
	}
	await := func(what string, event <-chan string, p process) string {
		t.Helper()
		select {
		case text := <-event:
			return text
		case err := <-p.ended:
			t.Fatalf("before %s the process has ended: %v", what, err)
		case <-t.Context().Done():
			t.Fatal(what + " does not come")
		}
		return ""
	}
	end := func(p process) {
		t.Helper()
		p.stop()
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
	}

	first := start("first", "127.0.0.1:0")
	await("it has the node", first.has, first)
	address := first.early.String()
	second := start("second", address)
	if second.early != nil {
		t.Error("both serve their metrics at one address")
	}
	end(first)
	await("it has the node", second.has, second)
	if at := await("it serves the metrics", second.says, second); at != address {
		t.Errorf("it serves its metrics at %s, want %s", at, address)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the metrics have the status %d", response.StatusCode)
	}
	end(second)

	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	third := start("third", address)
	defer third.stop()
	if _, ok := errors.AsType[usageError](<-third.ended); !ok {
		t.Error("a process that has its node runs without the metrics it is to serve")
	}
	for _, wrong := range []string{"127.0.0.1:700000", "203.0.113.1:9100"} {
		if _, err := (&options{metricsAddr: wrong}).newMetricsPort(t.Context(), nil, newStandby()); err == nil {
			t.Errorf("%s is taken for an address to serve", wrong)
		}
	}
}
