package nodeutil_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// logging is tiny with logs.
type logging struct{ tiny }

func (*logging) GetContainerLogs(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("a line\n")), nil
}

// whole is a Provider with all that there is beside.
type whole struct {
	logging
	node.NaiveNodeProvider
}

func (*whole) NotifyPods(context.Context, func(*corev1.Pod)) {}
func (*whole) GetPodByUID(context.Context, string, string, types.UID) (*corev1.Pod, error) {
	return nil, nil
}
func (*whole) GetPodStatusByUID(context.Context, string, string, types.UID) (*corev1.PodStatus, error) {
	return nil, nil
}
func (*whole) RunInContainer(context.Context, string, string, string, []string, api.AttachIO) error {
	return nil
}
func (*whole) AttachToContainer(context.Context, string, string, string, api.AttachIO) error {
	return nil
}
func (*whole) PortForward(context.Context, string, string, int32, io.ReadWriteCloser) error {
	return nil
}
func (*whole) GetStatsSummary(context.Context) (*statsv1alpha1.Summary, error) {
	return &statsv1alpha1.Summary{}, nil
}
func (*whole) GetMetricsResource(context.Context) ([]*dto.MetricFamily, error) { return nil, nil }

func TestWholeProviderIsReturnedAsIs(t *testing.T) {
	p := &whole{}
	if got := nodeutil.AsProvider(p); got != nodeutil.Provider(p) {
		t.Errorf("got %T", got)
	}
}

func TestCapabilities(t *testing.T) {
	all := []string{"notify", "pods-by-uid", "node-status", "logs", "exec", "attach", "port-forward", "stats", "metrics"}
	for _, test := range []struct {
		provider any
		want     []string
	}{
		{nil, nil},
		{&tiny{}, nil},
		{nodeutil.AsProvider(&tiny{}), nil},
		{&logging{}, []string{"logs"}},
		{nodeutil.AsProvider(&logging{}), []string{"logs"}},
		{nodeutil.AsProvider(&notifying{}), []string{"notify"}},
		{&whole{}, all},
		{(*whole)(nil), all},
		{nodeutil.AsProvider(&whole{}), all},
	} {
		if got := nodeutil.Capabilities(test.provider); !slices.Equal(got, test.want) {
			t.Errorf("%T: got %q, want %q", test.provider, got, test.want)
		}
	}
}

func TestRoutesOfCapabilities(t *testing.T) {
	ask := func(t *testing.T, handler node.PodLifecycleHandler, method, path string) *httptest.ResponseRecorder {
		t.Helper()
		mux := http.NewServeMux()
		_, err := nodeutil.NewNode("vk", making(handler), nodeutil.WithClient(fake.NewSimpleClientset()), openTo(mux))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	for _, route := range []struct{ method, path, lacks string }{
		{"GET", "/containerLogs/ns/pod/c", "GetContainerLogs"},
		{"POST", "/exec/ns/pod/c?command=ls&output=1", "RunInContainer"},
		{"POST", "/attach/ns/pod/c?output=1", "AttachToContainer"},
		{"POST", "/portForward/ns/pod", "PortForward"},
		{"GET", "/stats/summary", "GetStatsSummary"},
		{"GET", "/metrics/resource", "GetMetricsResource"},
	} {
		if w := ask(t, &tiny{}, route.method, route.path); w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "provider does not implement "+route.lacks) {
			t.Errorf("%s without the method: %d %s", route.path, w.Code, w.Body)
		}
		if w := ask(t, &whole{}, route.method, route.path); w.Code == http.StatusNotImplemented || w.Code == http.StatusNotFound {
			t.Errorf("%s with the method: %d %s", route.path, w.Code, w.Body)
		}
	}
	mux, n := attachedTo(t, &tiny{})
	begin(t, n)
	for _, path := range []string{"/pods", "/runningpods/"} {
		w := httptest.NewRecorder()
		if mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "PodList") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Direct calls of the methods return an error and do not panic.
func TestMissingMethodsFail(t *testing.T) {
	ctx := t.Context()
	p := nodeutil.AsProvider(&tiny{})
	_, logs := p.GetContainerLogs(ctx, "", "", "", api.ContainerLogOpts{})
	_, stats := p.GetStatsSummary(ctx)
	_, metrics := p.GetMetricsResource(ctx)
	for name, err := range map[string]error{
		"GetContainerLogs": logs, "GetStatsSummary": stats, "GetMetricsResource": metrics,
		"RunInContainer":    p.RunInContainer(ctx, "", "", "", nil, nil),
		"AttachToContainer": p.AttachToContainer(ctx, "", "", "", nil),
		"PortForward":       p.PortForward(ctx, "", "", 0, nil),
	} {
		wantError(t, err, name)
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v is not ErrUnsupported", err)
		}
	}
}

// Callers find what else the handler can do, such as io.Closer.
func TestAsProviderCanBeUnwrapped(t *testing.T) {
	p := &struct{ node.PodLifecycleHandler }{}
	wrapped, ok := nodeutil.AsProvider(p).(interface {
		Unwrap() node.PodLifecycleHandler
	})
	if !ok || wrapped.Unwrap() != node.PodLifecycleHandler(p) {
		t.Errorf("got %v, %v", wrapped, ok)
	}
}

// uidNotifying knows pods by UID, too.
type uidNotifying struct {
	notifying
	byUID chan types.UID
}

func (p *uidNotifying) GetPodByUID(_ context.Context, _, _ string, uid types.UID) (*corev1.Pod, error) {
	select {
	case p.byUID <- uid:
	default:
	}
	return nil, nil
}

func (p *uidNotifying) GetPodStatusByUID(context.Context, string, string, types.UID) (*corev1.PodStatus, error) {
	return nil, nil
}

// A pod controller of one's own uses what AsProvider keeps.
func TestPodControllerOfAsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(pod("p", "vk"))
		factory := informers.NewSharedInformerFactory(client, 0)
		handler := &uidNotifying{notifying{asked: make(chan struct{})}, make(chan types.UID, 1)}
		pods, err := node.NewPodController(node.PodControllerConfig{
			PodClient: client.CoreV1(), PodInformer: factory.Core().V1().Pods(), EventRecorder: &record.FakeRecorder{},
			Provider: nodeutil.AsProvider(handler), SkipDownwardAPIResolution: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := contextWithCancel(t)
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		wait, err := pods.Start(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer wait()
		defer cancel()
		synctest.Wait()
		select {
		case <-handler.asked:
		default:
			t.Error("NotifyPods was not called")
		}
		select {
		case uid := <-handler.byUID:
			if uid != "uid-of-p" {
				t.Errorf("asked for the UID %q", uid)
			}
		default:
			t.Error("the pod was not looked for by its UID")
		}
	})
}

// limited has all methods, and cannot do what they are for but logs.
type limited struct{ whole }

func (*limited) Lacks(capability string) bool { return capability != "logs" }

func TestLimitedProvider(t *testing.T) {
	if got := nodeutil.Capabilities(&limited{}); !slices.Equal(got, []string{"logs"}) {
		t.Errorf("got %q", got)
	}
	mux := http.NewServeMux()
	if _, err := nodeutil.NewNode("vk", making(&limited{}), nodeutil.WithClient(fake.NewSimpleClientset()), openTo(mux)); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]int{"/exec/ns/pod/c?command=ls&output=1": http.StatusNotImplemented, "/containerLogs/ns/pod/c": http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != code {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
