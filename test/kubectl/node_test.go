//go:build integration

package kubectl

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

// testNode is a virtual node in this process, put together as the binary's is.
type testNode struct {
	name     string
	dir      string // of its pods
	provider *processes
	log      *lockedbuffer.Buffer
	streams  streamCount
}

// startNode starts a node that declares the given features, and waits until it
// is Ready. At the end of the test it is stopped, and must leave nothing.
func startNode(t *testing.T, features ...string) *testNode {
	t.Helper()
	n := &testNode{
		name: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")),
		dir:  realPath(t, t.TempDir()),
		log:  &lockedbuffer.Buffer{},
	}
	logger := vkslog.FromSlog(slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ctx, cancel := context.WithCancel(log.WithLogger(context.Background(), logger))
	var background sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		background.Wait()
	})

	auth := n.startAuth(ctx, t, &background)
	address := nodeAddress(t)
	mux := http.NewServeMux()
	running, err := nodeutil.NewNode(n.name, n.newProvider(address, features), nodeutil.WithNodeConfig(nodeutil.NodeConfig{
		Client:         client,
		HTTPListenAddr: net.JoinHostPort(address, "0"),
		Handler:        n.streams.counting(nodeutil.WithAuth(auth, api.InstrumentHandler(mux))),
	}), nodeutil.AttachProviderRoutes(mux))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = running.Run(ctx) }()
	t.Cleanup(func() {
		eventually(t, "no process is left in a pod", func() (bool, string) {
			left := processesIn(t, n.dir)
			return len(left) == 0, fmt.Sprint(left)
		})
		cancel()
		<-running.Done()
		if err := running.Err(); err != nil {
			t.Errorf("the node failed: %v", err)
		}
		if err := n.provider.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", n.name, n.log)
		}
		if err := client.CoreV1().Nodes().Delete(context.Background(), n.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	if err := running.WaitReady(t.Context(), patience); err != nil {
		t.Fatalf("%v\n%s", err, n.log)
	}
	return n
}

func (n *testNode) newProvider(address string, features []string) nodeutil.NewProviderFunc {
	return func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		m, err := mock.New(mock.Config{NodeName: n.name, HostIP: address})
		if err != nil {
			return nil, nil, err
		}
		m.ConfigureNode(context.Background(), cfg.Node)
		cfg.Node.Status.DeclaredFeatures = features
		n.provider = newProcesses(m, n.dir)
		return n.provider, m, nil
	}
}

// startAuth has callers checked as a kubelet does.
func (n *testNode) startAuth(ctx context.Context, t *testing.T, background *sync.WaitGroup) nodeutil.Auth {
	t.Helper()
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca",
		"kube-system", "extension-apiserver-authentication", "client-ca-file", client)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.RunOnce(ctx); err != nil {
		t.Fatal(err)
	}
	background.Go(func() { ca.Run(ctx, 1) })
	auth, err := nodeutil.WebhookAuth(client, n.name, func(cfg *nodeutil.WebhookAuthConfig) error {
		cfg.AuthnConfig.ClientCertificateCAContentProvider = ca
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return auth
}

// nodeAddress is an address of this machine to which the API server also
// proxies nodes/proxy, which it does not for loopback.
func nodeAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback, which the API server does not proxy to")
	return ""
}

// streamCount counts the requests that became streams, by what and how, such as
// "exec SPDY/3.1".
type streamCount struct {
	mu    sync.Mutex
	count map[string]int
}

func (s *streamCount) counting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if how := r.Header.Get("Upgrade"); how != "" {
			what := strings.Split(r.URL.Path, "/")[1]
			if protocol := r.Header.Get("Sec-WebSocket-Protocol"); protocol != "" {
				how += " " + protocol
			}
			s.mu.Lock()
			if s.count == nil {
				s.count = map[string]int{}
			}
			s.count[what+" "+how]++
			s.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}

func (s *streamCount) get() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.count)
}

// processesIn returns the command lines of the processes that run below dir.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		where, _ := os.Readlink(filepath.Join(path, "cwd")) // the process may have ended
		if strings.HasPrefix(where, dir) {
			command, _ := os.ReadFile(filepath.Join(path, "cmdline"))
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

func realPath(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// podSpec is a pod with the given containers that only this node takes.
func (n *testNode) podSpec(containers ...corev1.Container) corev1.PodSpec {
	return corev1.PodSpec{NodeName: n.name, Containers: containers}
}
