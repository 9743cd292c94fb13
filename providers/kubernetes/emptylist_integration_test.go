//go:build integration

package kubernetes_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
)

// forgetful is a proxy in front of an API server. While it forgets, it answers lists of
// pods with none, and its watches have no events.
type forgetful struct {
	*httptest.Server
	forgets atomic.Bool
	lists   atomic.Int32 // that had no pods
}

func newForgetful(t *testing.T, c *cluster) *forgetful {
	t.Helper()
	at, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.FlushInterval = -1
	if proxy.Transport, err = rest.TransportFor(rest.AnonymousClientConfig(c.Config())); err != nil {
		t.Fatal(err)
	}
	f := &forgetful{}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isMetadata := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata")
		if !f.forgets.Load() || r.Method != http.MethodGet || r.URL.Path != "/api/v1/pods" || isMetadata {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") == "true": // the informer lists instead
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`)
		case query.Get("watch") != "" && f.lists.Load() == 0: // it cannot go on where it was
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}`)
		case query.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			list, err := c.client.CoreV1().Pods("").List(r.Context(), metav1.ListOptions{Limit: 1})
			if err != nil {
				return
			}
			f.lists.Add(1)
			fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": %q}, "items": []}`, list.ResourceVersion)
		}
	}))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// remoteOf is remoteOf for the cluster behind the proxy.
func (f *forgetful) remoteOf(t *testing.T, token string) kubernetes.Remote {
	t.Helper()
	dir := t.TempDir()
	remote := kubernetes.Remote{Server: f.URL, CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token")}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	for path, content := range map[string][]byte{remote.CAFile: ca, remote.TokenFile: []byte(token)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return remote
}

// A remote API server that lists no pods for longer than a pod may be missing loses none
// of them, and has none started a second time.
func TestRemoteThatListsNoPodsForAWhile(t *testing.T) {
	home, remote := startCluster(t), startCluster(t)
	startMock(t, remote, "remote-1")
	proxy := newForgetful(t, remote)
	startVirtual(t, newClient(t, home.as(home.account("kubernetes-rbac.yaml"))), configOf(t, proxy.remoteOf(t, remote.account("kubernetes-remote-rbac.yaml")), `
namespaces: {mapping: prefix, prefix: home-, create: true}
evicted: restart
`))
	w := &world{t: t, home: home, remote: remote}
	var pods []*corev1.Pod
	before := map[types.UID]types.UID{} // the remote pods' UIDs
	for _, name := range []string{"one", "two", "three", "four"} {
		pods = append(pods, w.pod(t, name, nil))
	}
	for _, pod := range pods {
		w.waitRunning(t, pod)
		far, err := w.remotePod(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		before[pod.UID] = far.UID
	}
	check := func(when string) {
		t.Helper()
		for _, pod := range pods {
			now, err := home.client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
			switch {
			case err != nil:
				t.Fatalf("%s: %v", when, err)
			case now.UID != pod.UID || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0:
				t.Fatalf("%s, pod %s is %+v", when, pod.Name, now.Status)
			}
			if far, err := w.remotePod(t.Context(), pod.UID); err != nil || far.UID != before[pod.UID] || far.DeletionTimestamp != nil {
				t.Fatalf("%s, the remote pod of %s was replaced or deleted: %v", when, pod.Name, err)
			}
		}
	}

	proxy.forgets.Store(true)
	proxy.CloseClientConnections()
	eventually(t, "the provider has listed no pods", func(context.Context) error {
		if proxy.lists.Load() == 0 {
			return fmt.Errorf("it has not listed them")
		}
		return nil
	})
	for end := time.Now().Add(80 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Second) {
		check("while the remote cluster lists no pods")
	}
	w.delete(t, pods[0]) // it can be deleted meanwhile
	pods = pods[1:]
	proxy.forgets.Store(false)
	proxy.CloseClientConnections()
	w.waitRunning(t, w.pod(t, "five", nil))
	check("after that")
	w.delete(t, pods[0])
}
