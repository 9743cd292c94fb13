//go:build integration

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// realHistories is how many histories run on the real control plane, at once.
const realHistories = 24

// The histories of virtual time, shorter and faster, with the real API server
// behind a proxy with faults.
func TestHistoriesOnARealControlPlane(t *testing.T) {
	config, base := realCluster(t), drawSeed(t)
	t.Run("histories", func(t *testing.T) {
		for i := range realHistories {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				h := drawHistory(base+uint64(i), 20)
				if broken := runReal(t, config, h, fmt.Sprintf("faults-%d", i)); len(broken) > 0 {
					t.Errorf("%s\n%s", strings.Join(broken, "\n"), h)
				}
			})
		}
	})
}

// realCluster starts a control plane that ends with the test.
func realCluster(t *testing.T) *rest.Config {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster, err := controlplane.Start(ctx, controlplane.Options{Binary: "../../bin/controlplane"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster.Config()
}

// drawSeed returns the seed of -faults.seed, or a new one, and says which.
func drawSeed(t *testing.T) uint64 {
	base := *seed
	if base == 0 {
		base = rand.Uint64() >> 1
	}
	t.Logf("-faults.seed=%d", base)
	return base
}

// runReal runs a history against the API server of a configuration, on a node and
// in a namespace of the given name.
func runReal(t *testing.T, config *rest.Config, h history, name string) []string {
	t.Helper()
	w := realWorld(t, config, h, name)
	defer w.watch(t)()
	w.live(h)
	return w.broken
}

// realWorld is a world with the API server of a configuration.
func realWorld(t *testing.T, config *rest.Config, h history, name string) *world {
	t.Helper()
	w := newWorld(t.Context(), h)
	w.ns, w.node = name, name
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.admin = admin
	upstream, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	w.api = fault.NewTransport(upstream, h.seed)
	w.api.MaxDelay, w.api.MaxPartition, w.api.MaxWatch = 300*time.Millisecond, 3*time.Second, 3*time.Second
	w.prov.MaxDelay, w.prov.MaxHang = 300*time.Millisecond, 3*time.Second
	proxy := httptest.NewServer(fault.NewProxy(target, w.api))
	t.Cleanup(proxy.Close)
	direct := &http.Transport{}
	t.Cleanup(direct.CloseIdleConnections)
	w.host, w.way, w.look = proxy.URL, direct, w.ask
	w.settle = func() {}
	w.compact = func() {}
	w.most, w.restStep = 2*time.Second, time.Second
	// A name is remembered for a minute; what is left under it is then seen within
	// five, and three times, a minute apart, before it counts as an orphan.
	w.restWithin = 9 * time.Minute
	w.hangUp = func() {
		direct.CloseIdleConnections()
		utilnet.CloseIdleConnectionsFor(upstream)
	}
	makeNamespace(t, admin, name)
	return w
}

func makeNamespace(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := admin.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		if err == nil {
			return
		}
		if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ask takes in what the API server has of a pod at this moment.
func (w *world) ask(pod *corev1.Pod) {
	if pod.Spec.NodeName != w.node {
		return
	}
	now, err := w.admin.CoreV1().Pods(pod.Namespace).Get(w.ctx, pod.Name, metav1.GetOptions{})
	switch {
	case err == nil && now.UID == pod.UID:
		w.know(now)
	case err == nil || apierrors.IsNotFound(err):
		w.know(pod)
		w.mu.Lock()
		w.pods[pod.UID].gone = true
		w.mu.Unlock()
	default:
		w.must(err)
	}
}

// watch takes in what becomes of the pods in the API, and sees whether their
// phases only move on, until it is stopped.
func (w *world) watch(t *testing.T) (stop func()) {
	t.Helper()
	watch, err := w.admin.CoreV1().Pods(w.ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		last := map[types.UID]corev1.PodPhase{}
		for event := range watch.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			w.know(pod)
			was, is := last[pod.UID], pod.Status.Phase
			if rank[is] < rank[was] || isTerminal(was) && is != was {
				w.breaks("invariant 6: the phase of pod %s (%s) went from %s to %s", pod.Name, pod.UID, was, is)
			}
			last[pod.UID] = is
			if event.Type == "DELETED" {
				w.auditEnd(pod)
			}
		}
	}()
	return func() { watch.Stop(); <-ended }
}
