package nodeutil_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// On the port for all, a request is about the node under whose name it comes, or
// that has the pod; and it is authorized for that node.
func TestFleetFindsTheNode(t *testing.T) {
	client := fake.NewSimpleClientset(pod("web", "vk-1"))
	fleet, err := nodeutil.NewFleet(nodeutil.FleetConfig{Client: client, Auth: nodeutil.NoAuth(), HTTPListenAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		name := fmt.Sprint("vk-", i)
		if _, err := fleet.Add(name, making(&tiny{}), handledBy(answering(name))); err != nil {
			t.Fatal(err)
		}
	}
	result := make(chan error, 1)
	ctx, cancel := contextWithCancel(t)
	go func() { result <- fleet.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	}()
	for i := range 3 {
		if err := fleet.Node(fmt.Sprint("vk-", i)).WaitReady(t.Context(), deadline); err != nil {
			t.Fatal(err)
		}
	}
	port := getNode(t, client, "vk-0").Status.DaemonEndpoints.KubeletEndpoint.Port
	if other := getNode(t, client, "vk-1").Status.DaemonEndpoints.KubeletEndpoint.Port; port == 0 || other != port {
		t.Errorf("the nodes tell ports %d and %d, want the same", port, other)
	}
	base := fmt.Sprint("https://127.0.0.1:", port)
	for _, c := range []struct {
		name, path, sni, host string
		status                int
		answer                string
	}{
		{name: "by the pod of a log", path: "/containerLogs/default/web/main", status: 200, answer: "vk-1"},
		{name: "by the pod of an exec", path: "/exec/default/web/main?command=id", status: 200, answer: "vk-1"},
		{name: "by the pod of an attach, with its UID", path: "/attach/default/web/u1/main", status: 200, answer: "vk-1"},
		{name: "by the pod of a port-forward", path: "/portForward/default/web", status: 200, answer: "vk-1"},
		{name: "by the name in the handshake", path: "/pods", sni: "vk-2", status: 200, answer: "vk-2"},
		{name: "by the host", path: "/stats/summary", host: "vk-0:10250", status: 200, answer: "vk-0"},
		{name: "not at all", path: "/pods", status: 421, answer: "not come under the name of a node"},
		{name: "by a pod that nobody has", path: "/containerLogs/default/gone/main", status: 421, answer: "no node here has the pod default/gone"},
		{name: "health is everybody's", path: "/healthz", status: 200, answer: "ok"},
		{name: "readiness too", path: "/readyz", status: 200, answer: "ok"},
		{name: "metrics are of all", path: "/metrics", status: 200, answer: `vk_nodes{ready="true"} 3`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := insecure()
			config.ServerName = c.sni
			status, body := getAs(t, base+c.path, c.host, config)
			if status != c.status || !strings.Contains(body, c.answer) {
				t.Errorf("got %d %q, want %d with %q", status, body, c.status, c.answer)
			}
		})
	}
}

func getAs(t *testing.T, url, host string, config *tls.Config) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, readAll(t, resp.Body)
}

func TestFleetAuthorizesForTheNode(t *testing.T) {
	for name, want := range map[string]string{"vk-0": "vk-0", "vk-1": "vk-1", "": ""} {
		auth := nodeutil.AuthForNode(nodeutil.NoAuth(), name)
		attributes := auth.GetRequestAttributes(nil, httptest.NewRequest(http.MethodGet, "/pods", nil))
		if attributes.GetName() != want || attributes.GetResource() != "nodes" {
			t.Errorf("for node %q: asked about %s %q", name, attributes.GetResource(), attributes.GetName())
		}
	}
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(testContext(t))
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The metrics have the life of the certificate of the port that all nodes share.
func TestFleetMeasuresItsServingCertificate(t *testing.T) {
	cert, key := newAuthority(t).issue(t, "fleet", x509.ExtKeyUsageServerAuth) // for an hour
	config := &tls.Config{}
	if err := nodeutil.WithKeyPairFromPath(write(t, "tls.crt", cert), write(t, "tls.key", key))(config); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleClientset()
	fleet, err := nodeutil.NewFleet(nodeutil.FleetConfig{Client: client, Auth: nodeutil.NoAuth(), HTTPListenAddr: "127.0.0.1:0", TLSConfig: config})
	if err != nil {
		t.Fatal(err)
	}
	n, err := fleet.Add("vk", making(&tiny{}))
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	ctx, cancel := contextWithCancel(t)
	go func() { result <- fleet.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	}()
	if err := n.WaitReady(t.Context(), deadline); err != nil {
		t.Fatal(err)
	}
	port := getNode(t, client, "vk").Status.DaemonEndpoints.KubeletEndpoint.Port
	_, text := getAs(t, fmt.Sprint("https://127.0.0.1:", port, "/metrics"), "", insecure())
	_, after, _ := strings.Cut(text, "\nkubelet_certificate_manager_server_ttl_seconds ")
	value, _, _ := strings.Cut(after, "\n")
	if seconds, err := strconv.ParseFloat(value, 64); err != nil || seconds <= 0 || seconds > 3600 {
		t.Errorf("the certificate is valid for %q seconds, want an hour at most", value)
	}
}
