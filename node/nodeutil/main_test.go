package nodeutil_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // what the libraries say of scripted failures
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// deadline is how long an event may take before a test fails: a busy machine is no failure.
const deadline = 2 * time.Minute

// tiny is the least that a provider has to be: the six methods.
type tiny struct {
	mu   sync.Mutex
	pods map[string]*corev1.Pod
}

func (p *tiny) CreatePod(_ context.Context, pod *corev1.Pod) error {
	pod.Status.Phase = corev1.PodRunning
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods == nil {
		p.pods = map[string]*corev1.Pod{}
	}
	p.pods[pod.Namespace+"/"+pod.Name] = pod
	return nil
}

func (p *tiny) UpdatePod(context.Context, *corev1.Pod) error { return nil }

func (p *tiny) DeletePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, pod.Namespace+"/"+pod.Name)
	return nil
}

func (p *tiny) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.pods[namespace+"/"+name]; pod != nil {
		return pod.DeepCopy(), nil
	}
	return nil, errdefs.NotFoundf("pod %s/%s does not exist", namespace, name)
}

func (p *tiny) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p *tiny) GetPods(context.Context) (pods []*corev1.Pod, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		pods = append(pods, pod.DeepCopy())
	}
	return pods, nil
}

// notifying is tiny that notifies of its pods.
type notifying struct {
	tiny
	asked chan struct{}
}

func (p *notifying) NotifyPods(context.Context, func(*corev1.Pod)) { close(p.asked) }

// making returns a function that makes the provider, without more.
func making(handler node.PodLifecycleHandler) nodeutil.NewProviderFunc {
	return func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return nodeutil.AsProvider(handler), nil, nil
	}
}

// listenAnywhere is an option for a free port of this machine.
func listenAnywhere(cfg *nodeutil.NodeConfig) error {
	cfg.HTTPListenAddr = "127.0.0.1:0"
	return nil
}

func handledBy(h http.Handler) nodeutil.NodeOpt {
	return func(cfg *nodeutil.NodeConfig) error {
		cfg.Handler = h
		return nil
	}
}

// openTo attaches the provider routes to mux, for everybody.
func openTo(mux *http.ServeMux) nodeutil.NodeOpt {
	return func(cfg *nodeutil.NodeConfig) error {
		cfg.Auth = nodeutil.NoAuth()
		return nodeutil.AttachProviderRoutes(mux)(cfg)
	}
}

func answering(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// run runs n until stop is called, at the latest at the end of the test.
func run(t *testing.T, n *nodeutil.Node) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- n.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-result:
			return err
		case <-time.After(deadline):
			return fmt.Errorf("Run did not end")
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Logf("the node ended with %v", err)
		}
	})
	return stop
}

// start makes a node named vk, and runs it until it is ready.
func start(t *testing.T, client kubernetes.Interface, newProvider nodeutil.NewProviderFunc, opts ...nodeutil.NodeOpt) (n *nodeutil.Node, stop func() error) {
	t.Helper()
	n, err := nodeutil.NewNode("vk", newProvider, append([]nodeutil.NodeOpt{nodeutil.WithClient(client), listenAnywhere}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	stop = run(t, n)
	if err := n.WaitReady(t.Context(), deadline); err != nil {
		t.Fatal(err)
	}
	return n, stop
}

func getNode(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	got, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// serving is start with a handler; it returns the address of the kubelet API.
func serving(t *testing.T, opts ...nodeutil.NodeOpt) (address string) {
	t.Helper()
	client := fake.NewSimpleClientset()
	start(t, client, making(&tiny{}), opts...)
	port := getNode(t, client, "vk").Status.DaemonEndpoints.KubeletEndpoint.Port
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
}

func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// get asks for a path of a server, with a connection of its own.
func get(t *testing.T, url string, config *tls.Config) (status int, body string, err error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	limit := time.After(deadline)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-limit:
			t.Fatalf("timed out: %s", what)
		case <-tick.C:
		}
	}
}

// wantError fails the test unless err has all of the texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one with %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got error %q, want it to have %q", err, text)
		}
	}
}
