package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// plain has the six methods, and keeps pods in memory.
type plain struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	created int
	fail    error         // of CreatePod and GetPods
	hang    chan struct{} // Ping waits for it
}

func newPlain() *plain { return &plain{pods: map[string]*corev1.Pod{}} }

func (p *plain) CreatePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return p.fail
	}
	p.created++
	p.pods[pod.Namespace+"/"+pod.Name] = pod
	return nil
}

func (p *plain) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[pod.Namespace+"/"+pod.Name] = pod
	return nil
}

func (p *plain) DeletePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[pod.Namespace+"/"+pod.Name] == nil {
		return errdefs.NotFound("there is no such pod")
	}
	delete(p.pods, pod.Namespace+"/"+pod.Name)
	return nil
}

func (p *plain) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[namespace+"/"+name], nil // nil is as good as NotFound
}

func (p *plain) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if pod == nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p *plain) GetPods(context.Context) ([]*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pods []*corev1.Pod
	for _, pod := range p.pods {
		pods = append(pods, pod)
	}
	return pods, p.fail
}

func (p *plain) Ping(ctx context.Context) error {
	if p.hang == nil {
		return nil
	}
	select {
	case <-p.hang:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *plain) NotifyNodeStatus(context.Context, func(*corev1.Node)) {}

// rich can do more, as its fields say.
type rich struct {
	*plain
	notify  func(*corev1.Pod)
	logs    func(container string, opts api.ContainerLogOpts) (io.ReadCloser, error)
	run     func(ctx context.Context, command []string, attach api.AttachIO) error
	forward func(port int32, conn io.ReadWriteCloser) error
}

func (r *rich) NotifyPods(_ context.Context, notify func(*corev1.Pod)) { r.notify = notify }

func (r *rich) GetContainerLogs(_ context.Context, _, _, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	return r.logs(container, opts)
}

func (r *rich) RunInContainer(ctx context.Context, _, _, _ string, command []string, attach api.AttachIO) error {
	return r.run(ctx, command, attach)
}

func (r *rich) PortForward(_ context.Context, _, _ string, port int32, conn io.ReadWriteCloser) error {
	return r.forward(port, conn)
}

var theNode = &corev1.Node{
	ObjectMeta: metav1.ObjectMeta{Name: "virtual-1", Labels: map[string]string{"far": "away"}},
	Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "far", Effect: corev1.TaintEffectNoSchedule}}},
}

func serverOf(t *testing.T, handler node.PodLifecycleHandler, n node.NodeProvider) *server.Server {
	t.Helper()
	return server.New(t.Context(), nodeutil.AsProvider(handler), n, server.Options{Name: "test", Node: theNode})
}

// connect connects a node to a provider.
func connect(t *testing.T, address string) (nodeutil.Provider, node.NodeProvider, *corev1.Node) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-1", Labels: map[string]string{}, Annotations: map[string]string{}}}
	p, np, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: n}, remote.Config{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	})
	return p, np, n
}

func aPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestPods(t *testing.T) {
	far := newPlain()
	p, np, n := connect(t, serve(t, serverOf(t, far, far)))
	ctx := t.Context()
	if n.Labels["far"] != "away" || len(n.Spec.Taints) != 1 {
		t.Errorf("the node is %+v", n)
	}
	if err := np.Ping(ctx); err != nil {
		t.Error(err)
	}
	pod := aPod("one")
	if err := p.CreatePod(ctx, pod); err != nil {
		t.Fatal(err)
	}
	got, err := p.GetPod(ctx, "default", "one")
	if err != nil || got.UID != pod.UID || got.Spec.Containers[0].Env[0].Value != "b" {
		t.Errorf("got %+v, %v", got, err)
	}
	pods, err := p.GetPods(ctx)
	if err != nil || len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
		t.Errorf("got %+v, %v", pods, err)
	}
	if err := p.DeletePod(ctx, pod); err != nil {
		t.Error(err)
	}
	if err := p.DeletePod(ctx, pod); !errdefs.IsOnlyNotFound(err) {
		t.Errorf("got %v, want one of class NotFound", err)
	}
	if status, err := p.GetPodStatus(ctx, "default", "one"); !errdefs.IsOnlyNotFound(err) {
		t.Errorf("got %+v, %v, want an error of class NotFound", status, err)
	}
}

// A pod of the same name with another UID is another pod.
func TestPodsOfOneName(t *testing.T) {
	far := newPlain()
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	older, younger := aPod("one"), aPod("one")
	younger.UID = "another"
	if err := errors.Join(p.CreatePod(t.Context(), older), p.CreatePod(t.Context(), younger)); err != nil {
		t.Fatal(err)
	}
	if far.created != 2 {
		t.Errorf("%d pods were created", far.created)
	}
}

// A creation whose connection broke, and which goes on, is not made a second time beside it.
func TestCallsForAPodTakeTurns(t *testing.T) {
	far := &slow{plain: newPlain(), began: make(chan struct{}, 2), goOn: make(chan struct{})}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- p.CreatePod(ctx, aPod("one")) }()
	<-far.began
	cancel() // the provider does not care
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	again := make(chan error, 1)
	go func() { again <- p.CreatePod(t.Context(), aPod("one")) }()
	select {
	case <-far.began:
		t.Error("the pod is created twice at once")
	case <-time.After(50 * time.Millisecond):
	}
	close(far.goOn)
	if err := <-again; err != nil || far.created != 1 {
		t.Errorf("the pod was created %d times, %v", far.created, err)
	}
}

type slow struct {
	*plain
	began, goOn chan struct{}
}

func (s *slow) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	s.began <- struct{}{}
	<-s.goOn
	return s.plain.CreatePod(ctx, pod)
}

// A call whose client has gone by the time of its turn has no effect: others may have come after
// it.
func TestCallsWithoutAClient(t *testing.T) {
	far := newPlain()
	s := serverOf(t, far, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.CreatePod(ctx, &pb.CreatePodRequest{Pod: []byte(encoded(t, aPod("one")))}); err == nil || far.created != 0 {
		t.Errorf("got %v, and %d pods", err, far.created)
	}
}

// A pod that would not fit into the provider's answers, so that the list of all pods failed, is
// not created.
func TestPodsThatAreTooLarge(t *testing.T) {
	far := newPlain()
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	pod := aPod("one")
	pod.Spec.Containers[0].Env[0].Value = strings.Repeat("x", 16<<20-2000)
	if err := p.CreatePod(t.Context(), pod); !errdefs.IsInvalidInput(err) || far.created != 0 {
		t.Errorf("got %v, and %d pods", err, far.created)
	}
	if err := p.UpdatePod(t.Context(), pod); !errdefs.IsInvalidInput(err) {
		t.Errorf("got %v", err)
	}
	pod.Spec.Containers[0].Env[0].Value = strings.Repeat("ä", 1<<20)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if pods, err := p.GetPods(t.Context()); err != nil || len(pods) != 1 {
		t.Errorf("got %d pods, %v", len(pods), err)
	}
}

// Names by which a provider would leave its directories are refused: no API server has them from
// anybody, but somebody with a certificate may send them.
func TestNamesThatLeadElsewhere(t *testing.T) {
	far := newPlain()
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	for what, change := range map[string]func(*corev1.Pod){
		"UID":            func(pod *corev1.Pod) { pod.UID = "../../etc" },
		"namespace":      func(pod *corev1.Pod) { pod.Namespace = ".." },
		"name":           func(pod *corev1.Pod) { pod.Name = "a/b" },
		"volume":         func(pod *corev1.Pod) { pod.Spec.Volumes = []corev1.Volume{{Name: "../../../etc"}} },
		"container":      func(pod *corev1.Pod) { pod.Spec.Containers[0].Name = "../a" },
		"init container": func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: ".."}} },
		"ephemeral container": func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "/a"}}}
		},
	} {
		pod := aPod("one")
		change(pod)
		if err := p.CreatePod(t.Context(), pod); !errdefs.IsInvalidInput(err) || far.created != 0 {
			t.Errorf("%s: got %v, and %d pods", what, err, far.created)
		}
	}
}

// What this process has put on its node stays there after any report of the provider, and what
// the provider takes back goes.
func TestNode(t *testing.T) {
	far := newPlain()
	reports := &reporter{plain: far}
	s := serverOf(t, far, reports)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-1", Labels: map[string]string{"type": "virtual-kubelet"}}}
	ours := corev1.Taint{Key: "virtual-kubelet.io/provider", Effect: corev1.TaintEffectNoSchedule}
	n.Spec.Taints = []corev1.Taint{ours}
	p, np, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: n}, remote.Config{Address: serve(t, s)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.(io.Closer).Close() })
	if n.Labels["type"] == "" || n.Labels["far"] == "" || len(n.Spec.Taints) != 2 {
		t.Errorf("the node is %+v, %+v", n.Labels, n.Spec.Taints)
	}
	last := make(chan *corev1.Node, 100)
	np.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { last <- n })
	reports.notify(&corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}})
	reports.notify(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{}}})
	waitFor(t, "both reports have come", func() bool {
		var n *corev1.Node
		select {
		case n = <-last:
		default:
			return false
		}
		if n.Labels["type"] == "" || n.Labels["far"] == "" || n.Spec.Taints == nil {
			t.Errorf("reported is %+v", n)
		}
		return n.Status.Capacity.Cpu().Value() == 8 && len(n.Spec.Taints) == 1 && n.Spec.Taints[0] == ours
	})
}

type reporter struct {
	*plain
	notify func(*corev1.Node)
}

func (r *reporter) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) { r.notify = notify }

// Another node's provider at the address does not say that pods are not there.
func TestAnotherProviderAtTheAddress(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "provider.sock")
	stop := listen(t, serverOf(t, newPlain(), nil), socket)
	p, np, _ := connect(t, "unix://"+socket)
	stop()
	other := theNode.DeepCopy()
	other.Name = "virtual-2"
	listen(t, server.New(t.Context(), nodeutil.AsProvider(newPlain()), nil, server.Options{Node: other}), socket)
	waitFor(t, "it is asked", func() bool {
		err := np.Ping(t.Context())
		return err != nil && strings.Contains(err.Error(), "virtual-2")
	})
	if err := p.DeletePod(t.Context(), aPod("one")); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v, of class %s", err, errdefs.ClassOf(err))
	}
	if pods, err := p.GetPods(t.Context()); err == nil {
		t.Errorf("got %d pods", len(pods))
	}
}

// A panic of the provider fails the call, and ends nothing else.
func TestPanics(t *testing.T) {
	far := &rich{plain: newPlain(), run: func(context.Context, []string, api.AttachIO) error { panic("no") }}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	far.pods = nil
	if err := p.CreatePod(t.Context(), aPod("one")); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("got %v", err)
	}
	if err := p.RunInContainer(t.Context(), "default", "one", "main", []string{"x"}, &client{}); err == nil || !strings.HasSuffix(err.Error(), "/Exec: no") {
		t.Errorf("got %v", err)
	}
}

func TestManyLargePods(t *testing.T) {
	far := newPlain()
	text := strings.Repeat("x", 64<<10)
	for i := range 300 {
		pod := aPod(fmt.Sprint("pod-", i))
		pod.Annotations = map[string]string{"text": text}
		far.pods["default/"+pod.Name] = pod
	}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	pods, err := p.GetPods(t.Context())
	if err != nil || len(pods) != 300 {
		t.Errorf("got %d pods, %v", len(pods), err)
	}
}

func TestCapabilities(t *testing.T) {
	far := newPlain()
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	if got := nodeutil.Capabilities(p); !slices.Equal(got, []string{"node-status"}) && len(got) != 0 {
		t.Errorf("a provider of six methods can do %v", got)
	}
	if _, ok := p.(node.PodNotifier); ok {
		t.Error("a provider that is polled has become one that notifies")
	}
	p, _, _ = connect(t, serve(t, serverOf(t, &rich{plain: far}, nil)))
	got := nodeutil.Capabilities(p)
	for _, want := range []string{"notify", "logs", "exec", "port-forward"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %v", want, got)
		}
	}
	for _, unwanted := range []string{"attach", "stats", "metrics", "pods-by-uid"} {
		if slices.Contains(got, unwanted) {
			t.Errorf("%s is among %v", unwanted, got)
		}
	}
}

func TestErrorsKeepTheirClass(t *testing.T) {
	far := newPlain()
	far.fail = errdefs.AsRetryAfter(errors.New("the quota is used up"), time.Hour)
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	err := p.CreatePod(t.Context(), aPod("one"))
	if delay, ok := errdefs.RetryAfter(err); !ok || delay != time.Hour || err.Error() != "the quota is used up" {
		t.Errorf("got %v, after %v", err, delay)
	}
	if _, err := p.GetPods(t.Context()); err == nil {
		t.Error("a list that failed seems to be empty")
	}
}

func TestAnotherNodeIsRefused(t *testing.T) {
	address := serve(t, serverOf(t, newPlain(), nil))
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-2"}}
	_, _, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: other}, remote.Config{Address: address})
	if !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), `of node "virtual-1", not of "virtual-2"`) {
		t.Errorf("got %v", err)
	}
}

// A node of the same name in another cluster would find that it has none of the pods, and delete them.
func TestAnotherClusterIsRefused(t *testing.T) {
	far := newPlain()
	address := serve(t, serverOf(t, far, nil))
	of := func(uid types.UID) (nodeutil.Provider, error) {
		client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}})
		p, np, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: theNode.DeepCopy(), Client: client}, remote.Config{Address: address})
		if err == nil {
			t.Cleanup(func() { _ = np.(io.Closer).Close() })
		}
		return p, err
	}
	connect(t, address) // does not say of which cluster it is
	p, err := of("first")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CreatePod(t.Context(), aPod("one")); err != nil {
		t.Error(err)
	}
	if _, err := of("second"); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "UID first, not of second") {
		t.Errorf("the other cluster: %v", err)
	}
	if _, err := of("first"); err != nil {
		t.Errorf("another process of the first cluster: %v", err)
	}
}

// keeping is a provider whose pods, and the UID of their cluster, outlast its servers.
type keeping struct {
	*plain
	uid    types.UID
	broken error
}

func (k *keeping) ClusterUID() (types.UID, string, error) { return k.uid, "/state/cluster-uid", nil }

func (k *keeping) KeepClusterUID(uid types.UID) error {
	if k.broken == nil {
		k.uid = uid
	}
	return k.broken
}

// Of two clusters the one of the pods counts also after a restart, and not the one that comes first,
// as long as there are pods.
func TestPodsKeepTheirCluster(t *testing.T) {
	far := &keeping{plain: newPlain(), broken: errors.New("no space left")}
	address := ""
	restart := func() { address = serve(t, serverOf(t, far, nil)) }
	of := func(uid types.UID) (nodeutil.Provider, error) {
		p, np, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: theNode.DeepCopy()}, remote.Config{Address: address, ClusterUID: uid})
		if err == nil {
			t.Cleanup(func() { _ = np.(io.Closer).Close() })
		}
		return p, err
	}
	restart()
	if _, err := of("first"); !errdefs.IsUnavailable(err) || errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a cluster that is not kept: %v", err)
	}
	far.broken = nil
	if _, err := of("another"); err != nil { // it is none of whose the pods are
		t.Error(err)
	}
	restart() // without pods
	first, err := of("first")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.CreatePod(t.Context(), aPod("one")); err != nil {
		t.Fatal(err)
	}
	for _, fail := range []error{nil, errors.New("the runtime is away")} {
		far.fail = fail
		restart()
		if _, err := of("another"); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "UID first, not of another") || !strings.Contains(err.Error(), "remove its file /state/cluster-uid") {
			t.Errorf("the other cluster comes first after a restart: %v", err)
		}
		if _, err := of("first"); err != nil {
			t.Error(err)
		}
	}
}

// An API server that does not answer at the start does not take the check away.
func TestClusterIsReadAgain(t *testing.T) {
	address := serve(t, serverOf(t, newPlain(), nil))
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "first"}})
	tries := 0
	fakeapi.React(&client.Fake, "get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		tries++
		return tries == 1, nil, errors.New("connection refused")
	})
	if _, np, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: theNode.DeepCopy(), Client: client}, remote.Config{Address: address}); err != nil {
		t.Error(err)
	} else {
		_ = np.(io.Closer).Close()
	}
	if _, _, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: theNode.DeepCopy()}, remote.Config{Address: address, ClusterUID: "second"}); !errdefs.IsPermanent(err) {
		t.Errorf("the other cluster: %v", err)
	}
}

func TestNobodyIsThere(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-1"}}
	config := remote.Config{Address: "unix://" + filepath.Join(t.TempDir(), "no.sock")}
	config.StartTimeout.Duration = 100 * time.Millisecond
	_, _, err := remote.New(t.Context(), nodeutil.ProviderConfig{Node: n}, config)
	if err == nil || !strings.Contains(err.Error(), config.Address) {
		t.Errorf("got %v", err)
	}
}

// A provider that hangs makes the node NotReady in time, and one that ends fails calls
// with class Unavailable, until it is there again.
func TestProviderThatHangsAndEnds(t *testing.T) {
	far := newPlain()
	far.hang = make(chan struct{})
	socket := filepath.Join(t.TempDir(), "provider.sock")
	s := serverOf(t, far, far)
	stop := listen(t, s, socket)
	p, np, _ := connect(t, "unix://"+socket)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := np.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	close(far.hang)

	if err := p.CreatePod(t.Context(), aPod("one")); err != nil {
		t.Fatal(err)
	}
	stop()
	for name, err := range map[string]error{"ping": np.Ping(t.Context()), "list": second(p.GetPods(t.Context())), "get": second(p.GetPod(t.Context(), "default", "one"))} {
		if !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
			t.Errorf("%s: got %v, of class %s", name, err, errdefs.ClassOf(err))
		}
	}
	listen(t, s, socket)
	waitFor(t, "it answers again", func() bool { return np.Ping(t.Context()) == nil })
	if pods, err := p.GetPods(t.Context()); err != nil || len(pods) != 1 {
		t.Errorf("got %d pods, %v", len(pods), err)
	}
}

func second[T any](_ T, err error) error { return err }

// The statuses that a provider reports while nobody is connected come later, and those
// that came before do not come again.
func TestWatchGoesOn(t *testing.T) {
	far := &rich{plain: newPlain()}
	socket := filepath.Join(t.TempDir(), "provider.sock")
	s := serverOf(t, far, nil)
	stop := listen(t, s, socket)
	far.pods["default/old"] = aPod("old")
	p, _, _ := connect(t, "unix://"+socket)
	var mu sync.Mutex
	var seen []string
	p.(node.PodNotifier).NotifyPods(t.Context(), func(pod *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, pod.Name+" "+string(pod.Status.Phase))
	})
	got := func(want ...string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(seen, want)
		}
	}
	waitFor(t, "the list has come", got("old Running"))
	far.notify(aPod("one"))
	waitFor(t, "a report has come", got("old Running", "one Running"))
	stop()
	for _, name := range []string{"one", "two"} {
		ended := aPod(name)
		ended.Status.Phase = corev1.PodSucceeded
		far.notify(aPod(name)) // only the last one counts
		far.notify(ended)
	}
	stop = listen(t, s, socket)
	waitFor(t, "the others have come", got("old Running", "one Running", "one Succeeded", "two Succeeded"))
	stop()
	again := serverOf(t, far, nil) // another process, which knows nothing of the token
	listen(t, again, socket)
	waitFor(t, "the list has come again", got("old Running", "one Running", "one Succeeded", "two Succeeded", "old Running"))
}

// byUID is a provider that keeps UIDs.
type byUID struct{ *rich }

func (p byUID) GetPodByUID(ctx context.Context, namespace, name string, _ types.UID) (*corev1.Pod, error) {
	return p.GetPod(ctx, namespace, name)
}

func (p byUID) GetPodStatusByUID(ctx context.Context, namespace, name string, _ types.UID) (*corev1.PodStatus, error) {
	return p.GetPodStatus(ctx, namespace, name)
}

// The end of a pod that goes while its provider, which has begun again, is not watched yet
// comes as well, also to a node that has begun again itself; not as the state of a pod that
// is there, nor anything else of one that is not.
func TestPodThatGoesBeforeTheWatch(t *testing.T) {
	far := byUID{&rich{plain: newPlain()}}
	far.pods["default/stays"] = aPod("stays")
	s := serverOf(t, far, nil)
	far.notify(aPod("forgotten"))
	for _, name := range []string{"one", "stays"} {
		ended := aPod(name)
		ended.Status.Phase = corev1.PodFailed
		far.notify(ended)
	}
	address := serve(t, s)
	for range 2 {
		p, _, _ := connect(t, address)
		var mu sync.Mutex
		var seen []string
		p.(node.PodNotifier).NotifyPods(t.Context(), func(pod *corev1.Pod) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprint(pod.UID, " ", pod.Status.Phase))
		})
		want := []string{"uid-stays Running", "uid-one Failed"}
		got := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(seen, want)
		}
		waitFor(t, "the list and the end have come", got)
		far.notify(aPod("last"))
		want = append(want, "uid-last Running")
		waitFor(t, "nothing else has come before a report", got)
	}
}

func TestLogs(t *testing.T) {
	reading, write := io.Pipe()
	closed := make(chan struct{})
	far := &rich{plain: newPlain(), logs: func(container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
		switch {
		case container != "main":
			return nil, errdefs.NotFoundf("container %q not found", container)
		case opts.Follow:
			return &closeReader{reading, func() { close(closed); _ = reading.Close() }}, nil
		}
		return io.NopCloser(strings.NewReader(fmt.Sprintf("%+v", opts))), nil
	}}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	since := time.Unix(1700000000, 5)
	log, err := p.GetContainerLogs(t.Context(), "default", "one", "main", api.ContainerLogOpts{Tail: 7, LimitBytes: 900, Timestamps: true, Previous: true, SinceTime: since})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	if want := fmt.Sprintf("%+v", api.ContainerLogOpts{Tail: 7, LimitBytes: 900, Timestamps: true, Previous: true, SinceTime: since}); err != nil || string(text) != want {
		t.Errorf("got %q, %v, want %q", text, err, want)
	}
	if log, err = p.GetContainerLogs(t.Context(), "default", "one", "main", api.ContainerLogOpts{SinceSeconds: 10}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(log); err != nil || !strings.Contains(string(text), "SinceSeconds:10") {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := p.GetContainerLogs(t.Context(), "default", "one", "other", api.ContainerLogOpts{}); !errdefs.IsOnlyNotFound(err) {
		t.Errorf("got %v", err)
	}

	log, err = p.GetContainerLogs(t.Context(), "default", "one", "main", api.ContainerLogOpts{Follow: true}) // before there is a line
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = write.Write([]byte("line\n")) }()
	line := make([]byte, 100)
	if n, err := log.Read(line); err != nil || string(line[:n]) != "line\n" {
		t.Errorf("got %q, %v", line[:n], err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	<-closed // the provider's reader, too
	if _, err := log.Read(line); err == nil {
		t.Error("a closed log is read")
	}
}

// split keeps the streams of logs apart.
type split struct{ *rich }

func (split) GetContainerLogStream(_ context.Context, _, _, container, stream string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(stream + " of " + container)), nil
}

func TestLogsOfOneStream(t *testing.T) {
	type streams interface {
		GetContainerLogStream(ctx context.Context, namespace, podName, container, stream string, opts api.ContainerLogOpts) (io.ReadCloser, error)
	}
	far := &rich{plain: newPlain()}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	if _, err := p.(streams).GetContainerLogStream(t.Context(), "default", "one", "main", "Stderr", api.ContainerLogOpts{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	p, _, _ = connect(t, serve(t, serverOf(t, split{far}, nil)))
	log, err := p.(streams).GetContainerLogStream(t.Context(), "default", "one", "main", "Stderr", api.ContainerLogOpts{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(log); err != nil || string(text) != "Stderr of main" {
		t.Errorf("got %q, %v", text, err)
	}
}

type closeReader struct {
	io.Reader
	close func()
}

func (c *closeReader) Close() error {
	c.close()
	return nil
}

// client are the streams of somebody who uses kubectl exec.
type client struct {
	in       io.Reader
	out, err bytes.Buffer
	tty      bool
	sizes    chan api.TermSize
}

func (c *client) Stdin() io.Reader            { return c.in }
func (c *client) Stdout() io.WriteCloser      { return nopCloser{&c.out} }
func (c *client) Stderr() io.WriteCloser      { return nopCloser{&c.err} }
func (c *client) TTY() bool                   { return c.tty }
func (c *client) Resize() <-chan api.TermSize { return c.sizes }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestExec(t *testing.T) {
	large := strings.Repeat("0123456789", 100_000)
	far := &rich{plain: newPlain(), run: func(ctx context.Context, command []string, attach api.AttachIO) error {
		switch command[0] {
		case "cat":
			_, err := io.Copy(attach.Stdout(), attach.Stdin())
			return err
		case "size":
			size := <-attach.Resize()
			fmt.Fprintf(attach.Stdout(), "%v %d x %d", attach.TTY(), size.Width, size.Height)
			return nil
		case "fail":
			fmt.Fprint(attach.Stderr(), "no")
			return exec.CodeExitError{Err: errors.New("it ended"), Code: 3}
		case "break":
			return errdefs.AsConflict(errors.New("the container does not run"))
		default:
			<-ctx.Done()
			return ctx.Err()
		}
	}}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	run := func(ctx context.Context, c *client, command ...string) error {
		return p.RunInContainer(ctx, "default", "one", "main", command, c)
	}

	cat := &client{in: strings.NewReader(large)}
	if err := run(t.Context(), cat, "cat"); err != nil || cat.out.String() != large {
		t.Errorf("%d bytes came back, %v", cat.out.Len(), err)
	}
	size := &client{tty: true, sizes: make(chan api.TermSize, 1)}
	size.sizes <- api.TermSize{Width: 120, Height: 40}
	if err := run(t.Context(), size, "size"); err != nil || size.out.String() != "true 120 x 40" {
		t.Errorf("got %q, %v", &size.out, err)
	}
	fail := &client{}
	err := run(t.Context(), fail, "fail")
	var exit exec.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 3 || fail.err.String() != "no" {
		t.Errorf("got %v, %q", err, &fail.err)
	}
	if err := run(t.Context(), &client{}, "break"); !errdefs.IsConflict(err) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, &client{}, "wait"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A provider whose process ends in the middle of a session has not ended it well.
func TestSessionThatBreaks(t *testing.T) {
	began := make(chan struct{})
	far := &rich{plain: newPlain(), run: func(ctx context.Context, _ []string, _ api.AttachIO) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}}
	socket := filepath.Join(t.TempDir(), "provider.sock")
	stop := listen(t, serverOf(t, far, nil), socket)
	p, _, _ := connect(t, "unix://"+socket)
	go func() {
		<-began
		stop()
	}()
	if err := p.RunInContainer(t.Context(), "default", "one", "main", []string{"wait"}, &client{}); err == nil {
		t.Error("it seems to have ended with exit code 0")
	}
}

// A command that does not read its input learns of the size of the terminal.
func TestResizeBehindUnreadInput(t *testing.T) {
	far := &rich{plain: newPlain(), run: func(_ context.Context, _ []string, attach api.AttachIO) error {
		size := <-attach.Resize()
		fmt.Fprintf(attach.Stdout(), "%d x %d", size.Width, size.Height)
		return nil
	}}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	reading, typed := io.Pipe()
	sizes := make(chan api.TermSize)
	go func() {
		_, _ = typed.Write([]byte("typed ahead\n"))
		_, _ = typed.Write([]byte("and more\n")) // once it is taken, the first is on its way
		sizes <- api.TermSize{Width: 120, Height: 40}
	}()
	c := &client{in: reading, tty: true, sizes: sizes}
	if err := p.RunInContainer(t.Context(), "default", "one", "main", []string{"x"}, c); err != nil || c.out.String() != "120 x 40" {
		t.Errorf("got %q, %v", &c.out, err)
	}
	_ = reading.Close()
}

func TestPortForward(t *testing.T) {
	far := &rich{plain: newPlain(), forward: func(port int32, conn io.ReadWriteCloser) error {
		text, err := io.ReadAll(conn) // until the client has sent all
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(conn, "port %d: %d bytes", port, len(text))
		return err
	}}
	p, _, _ := connect(t, serve(t, serverOf(t, far, nil)))
	conn := &half{Reader: strings.NewReader(strings.Repeat("x", 100_000))}
	if err := p.PortForward(t.Context(), "default", "one", 80, conn); err != nil || conn.out.String() != "port 80: 100000 bytes" {
		t.Errorf("got %q, %v", &conn.out, err)
	}
}

type half struct {
	io.Reader
	out bytes.Buffer
}

func (h *half) Write(data []byte) (int, error) { return h.out.Write(data) }
func (h *half) Close() error                   { return nil }

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
