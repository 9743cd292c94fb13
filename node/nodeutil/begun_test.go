package nodeutil_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// calledFor records the calls that requests lead to.
type calledFor struct {
	whole
	notified chan struct{} // NotifyPods returns once it is closed
	listed   chan struct{} // and GetPods, if it is not nil

	mu    sync.Mutex
	calls []string
}

func (p *calledFor) called(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, method)
}

func (p *calledFor) taken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := strings.Join(p.calls, " ")
	p.calls = nil
	return calls
}

func (p *calledFor) NotifyPods(context.Context, func(*corev1.Pod)) {
	p.called("NotifyPods")
	<-p.notified
}

func (p *calledFor) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	p.called("GetPods")
	if p.listed != nil {
		<-p.listed
	}
	return p.whole.GetPods(ctx)
}

func (p *calledFor) GetContainerLogs(ctx context.Context, namespace, name, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	p.called("GetContainerLogs")
	return p.whole.GetContainerLogs(ctx, namespace, name, container, opts)
}

func (p *calledFor) GetStatsSummary(context.Context) (*stats.Summary, error) {
	p.called("GetStatsSummary")
	used := uint64(7)
	return &stats.Summary{Pods: []stats.PodStats{{VolumeStats: []stats.VolumeStats{{
		PVCRef: &stats.PVCReference{Namespace: "ns", Name: "data"}, FsStats: stats.FsStats{UsedBytes: &used}}}}}}, nil
}

func (p *calledFor) GetMetricsResource(context.Context) ([]*dto.MetricFamily, error) {
	p.called("GetMetricsResource")
	return nil, nil
}

// heldClaim is a claim to a node whose lease another process renews, until it lets go.
func heldClaim(t *testing.T, client kubernetes.Interface, name string) (claim *node.Claim, letGo func()) {
	t.Helper()
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := &coordinationv1.Lease{}
	lease.Name, lease.Annotations = name, map[string]string{"virtual-kubelet.io/holder": "another"}
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ended := false
	claim, err := node.NewClaim(node.ClaimConfig{Node: name, Nodes: client.CoreV1().Nodes(), Leases: leases, Identity: node.Identity{
		ID: "mine", Ended: func(string) bool { mu.Lock(); defer mu.Unlock(); return ended },
	}})
	if err != nil {
		t.Fatal(err)
	}
	return claim, func() { mu.Lock(); defer mu.Unlock(); ended = true }
}

// askedOfProvider are requests, with the call that answers them.
var askedOfProvider = map[string]string{
	"/stats/summary":               "GetStatsSummary",
	"/metrics/resource":            "GetMetricsResource",
	"/metrics/cadvisor":            "GetStatsSummary",
	"/runningpods/":                "GetPods",
	"/containerLogs/default/web/c": "GetContainerLogs",
}

// A backend whose list hangs when the agent is started again keeps nobody from the logs and figures of pods that run.
func TestRequestsWhileTheFirstListHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &calledFor{notified: make(chan struct{}), listed: make(chan struct{})}
		close(p.notified)
		n, err := nodeutil.NewNode("vk", func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) { return p, nil, nil },
			nodeutil.WithClient(fake.NewSimpleClientset(pod("web", "vk"))))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		pass(10 * time.Second)
		mux := api.RoutesHandler(nodeutil.RoutesOf(n, p))
		for path, call := range askedOfProvider {
			if call == "GetPods" {
				continue
			}
			p.taken()
			if w := ask(mux, "GET", path); w.Code != http.StatusOK || p.taken() != call {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		close(p.listed)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The reason why a node has not begun may be that something was not there: that is no word on the pod.
func TestReasonThatSomethingIsNotThere(t *testing.T) {
	handler := api.RequirePod(func(context.Context, string, string) (*corev1.Pod, error) {
		return nil, errdefs.AsUnavailable(errdefs.NotFound("namespaces \"kube-node-lease\" not found"))
	}, http.NotFoundHandler())
	mux := http.NewServeMux()
	mux.Handle("/containerLogs/{namespace}/{pod}/{container}", handler)
	if w := ask(mux, "GET", "/containerLogs/default/web/c"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// No request leads to a call of the provider before the claim was acquired and NotifyPods has
// returned, nor after the end.
func TestRequestsBeforeTheProviderHasBegun(t *testing.T) {
	for kind, build := range map[string]func(t *testing.T, client kubernetes.Interface, newProvider nodeutil.NewProviderFunc, opts ...nodeutil.NodeOpt) (*nodeutil.Node, func(context.Context) error){
		"a node": func(t *testing.T, client kubernetes.Interface, newProvider nodeutil.NewProviderFunc, opts ...nodeutil.NodeOpt) (*nodeutil.Node, func(context.Context) error) {
			n, err := nodeutil.NewNode("vk", newProvider, append(opts, nodeutil.WithClient(client))...)
			if err != nil {
				t.Fatal(err)
			}
			return n, n.Run
		},
		"a node of a fleet": func(t *testing.T, client kubernetes.Interface, newProvider nodeutil.NewProviderFunc, opts ...nodeutil.NodeOpt) (*nodeutil.Node, func(context.Context) error) {
			fleet, err := nodeutil.NewFleet(nodeutil.FleetConfig{Client: client})
			if err != nil {
				t.Fatal(err)
			}
			n, err := fleet.Add("vk", newProvider, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return n, fleet.Run
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset(pod("web", "vk"))
				claim, letGo := heldClaim(t, client, "vk")
				p := &calledFor{notified: make(chan struct{})}
				var mayBegin func() bool
				claimed := func(cfg *nodeutil.NodeConfig) error { cfg.Claim = claim; return nil }
				n, run := build(t, client, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
					mayBegin = cfg.MayBegin
					return p, nil, nil
				}, claimed)
				mux := api.RoutesHandler(nodeutil.RoutesOf(n, p))

				wantRefused := func(when, why string) {
					t.Helper()
					for path := range askedOfProvider {
						if w := ask(mux, "GET", path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), why) {
							t.Errorf("%s: %s: %d %s", when, path, w.Code, w.Body)
						}
					}
					if w := ask(mux, "GET", "/metrics"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "kubelet_volume_stats") {
						t.Errorf("%s: /metrics: %d %s", when, w.Code, w.Body)
					}
					if calls := p.taken(); calls != "" {
						t.Errorf("%s: the provider was called: %s", when, calls)
					}
				}
				wantRefused("before it runs", "has not begun")
				if mayBegin() {
					t.Error("the provider may begin before the node runs")
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- run(ctx) }()
				pass(10 * time.Second)
				wantRefused("while another process has the node", "another renews its lease")
				if mayBegin() {
					t.Error("the provider may begin while another process has the node")
				}
				letGo()
				pass(3 * time.Second)
				if calls := p.taken(); calls != "NotifyPods" {
					t.Errorf("once the claim was acquired: the provider was called: %s", calls)
				}
				wantRefused("within NotifyPods", "has not begun")
				if !mayBegin() {
					t.Error("the provider may not begin although the claim was acquired")
				}
				close(p.notified)
				pass(3 * time.Second)
				p.taken()
				for path, call := range askedOfProvider {
					if w := ask(mux, "GET", path); w.Code != http.StatusOK || p.taken() != call {
						t.Errorf("%s: %d %s", path, w.Code, w.Body)
					}
				}
				if w := ask(mux, "GET", "/metrics"); !strings.Contains(w.Body.String(), "kubelet_volume_stats") {
					t.Errorf("/metrics has no volumes: %d", w.Code)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				p.taken()
				wantRefused("after the end", "any more")
				if mayBegin() {
					t.Error("the provider may begin after the end")
				}
			})
		})
	}
}

// A provider that is not closed yet begins nothing of its own accord once the node has ended, though the lease is kept.
func TestNothingBeginsAfterTheEndWhereTheClaimIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		claim, letGo := heldClaim(t, client, "vk")
		letGo()
		var mayBegin func() bool
		n, err := nodeutil.NewNode("vk", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			mayBegin = cfg.MayBegin
			return &whole{}, nil, nil
		}, nodeutil.WithClient(client), func(cfg *nodeutil.NodeConfig) error { cfg.Claim, cfg.KeepClaim = claim, true; return nil })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = n.Run(ctx) }()
		pass(10 * time.Second)
		if !mayBegin() {
			t.Error("the provider may not begin while the node runs")
		}
		cancel()
		<-n.Done()
		if mayBegin() {
			t.Error("the provider may begin after the end")
		}
		lease, err := nodeutil.NodeLeaseV1Client(client).Get(t.Context(), "vk", metav1.GetOptions{})
		if err != nil || lease.Annotations["virtual-kubelet.io/holder"] != "mine" {
			t.Errorf("the lease is not kept: %v %v", lease, err)
		}
	})
}
