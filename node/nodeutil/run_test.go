package nodeutil_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func pod(name, nodeName string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = name, "default", types.UID("uid-of-"+name)
	p.Spec.NodeName = nodeName
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	return p
}

func ready(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func TestRunRegistersTheNode(t *testing.T) {
	client := fake.NewSimpleClientset()
	fakeapi.React(&client.Fake, "create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		action.(clienttesting.CreateAction).GetObject().(*corev1.Node).UID = "n-1" // which leases are tied to
		return false, nil, nil
	})
	n, stop := start(t, client, making(&tiny{}), handledBy(answering("hello")))
	got := getNode(t, client, "vk")
	for _, label := range []string{"type", "kubernetes.io/role", "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"} {
		if got.Labels[label] == "" {
			t.Errorf("label %s is missing in %v", label, got.Labels)
		}
	}
	conditions := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range got.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	for condition, want := range map[corev1.NodeConditionType]corev1.ConditionStatus{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"} {
		if conditions[condition] != want {
			t.Errorf("condition %s is %q", condition, conditions[condition])
		}
	}
	if info := got.Status.NodeInfo; !strings.HasPrefix(info.KubeletVersion, "v") || info.Architecture == "" || info.OperatingSystem != "linux" {
		t.Errorf("node info is %+v", info)
	}
	port := got.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		t.Fatal("the node does not tell its port")
	}
	if _, body, err := get(t, fmt.Sprintf("https://127.0.0.1:%d/", port), insecure()); body != "hello" {
		t.Errorf("the port answers %q, %v", body, err)
	}
	eventually(t, "a lease", func() bool {
		_, err := nodeutil.NodeLeaseV1Client(client).Get(t.Context(), "vk", metav1.GetOptions{})
		return err == nil
	})
	if n.NodeController() == nil || n.PodController() == nil {
		t.Error("the controllers cannot be had")
	}
	select {
	case <-n.Ready():
	default:
		t.Error("Ready is not closed")
	}
	select {
	case <-n.Done():
		t.Error("Done is closed")
	default:
	}

	if err := stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if got := ready(getNode(t, client, "vk")); got != corev1.ConditionTrue {
		t.Errorf("after the end Ready is %q, want that a restart is not noticed", got)
	}
	<-n.Done()
	if err := n.Err(); err != nil {
		t.Errorf("Err is %v", err)
	}
	wantError(t, n.Run(t.Context()), "started before")
	wantError(t, n.WaitReady(t.Context(), time.Second), "has ended")
	if _, _, err := get(t, fmt.Sprintf("https://127.0.0.1:%d/", port), insecure()); err == nil {
		t.Error("the port still answers")
	}
}

func TestNothingServedWithoutHandler(t *testing.T) {
	client := fake.NewSimpleClientset()
	start(t, client, making(&tiny{}), nodeutil.AttachProviderRoutes(http.NewServeMux()))
	if port := getNode(t, client, "vk").Status.DaemonEndpoints.KubeletEndpoint.Port; port != 0 {
		t.Errorf("the node reports port %d", port)
	}
}

func TestRunTakesPods(t *testing.T) {
	client := fake.NewSimpleClientset(pod("mine", "vk"), pod("other", "elsewhere"))
	handler := &tiny{}
	start(t, client, making(handler))
	eventually(t, "the pod's status in the API", func() bool {
		got, err := client.CoreV1().Pods("default").Get(t.Context(), "mine", metav1.GetOptions{})
		return err == nil && got.Status.Phase == corev1.PodRunning
	})
	for _, action := range client.Actions() {
		if action.GetResource().Resource == "pods" && action.GetVerb() == "patch" && action.GetSubresource() != "status" {
			t.Errorf("the pod itself was patched: %v", action)
		}
	}
	if _, err := handler.GetPod(t.Context(), "default", "other"); err == nil {
		t.Error("the provider was given a pod of another node")
	}
}

func TestNotifyPodsIsKept(t *testing.T) {
	handler := &notifying{asked: make(chan struct{})}
	start(t, fake.NewSimpleClientset(), making(handler))
	select {
	case <-handler.asked:
	case <-time.After(deadline):
		t.Error("NotifyPods was not called")
	}
}

// addressed is a NodeProvider that reports its address late.
type addressed struct {
	node.NaiveNodeProvider
	notify chan func(*corev1.Node)
}

func (p addressed) NotifyNodeStatus(_ context.Context, notify func(*corev1.Node)) { p.notify <- notify }

func TestHostIPsFollowTheProvider(t *testing.T) {
	client := fake.NewSimpleClientset()
	nodeProvider := addressed{notify: make(chan func(*corev1.Node), 1)}
	start(t, client, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		cfg.Node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
		return nodeutil.AsProvider(&tiny{}), nodeProvider, nil
	})
	notify := <-nodeProvider.notify
	notify(nil)
	notify(&corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "vk"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
	}}})
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod("p", "vk"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod's host IP", func() bool {
		got, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
		if err == nil && got.Status.HostIP == "10.0.0.1" {
			t.Fatal("the pod got the node's former address")
		}
		return err == nil && got.Status.HostIP == "10.0.0.2"
	})
}

// A provider that says all of its node again, as it was given it, takes no labels
// back by which pods select nodes.
func TestNodeKeepsItsCommonLabels(t *testing.T) {
	client := fake.NewSimpleClientset()
	nodeProvider := addressed{notify: make(chan func(*corev1.Node), 1)}
	var given *corev1.Node
	start(t, client, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		cfg.Node.Status.NodeInfo.Architecture = "arm64"
		given = cfg.Node.DeepCopy()
		return nodeutil.AsProvider(&tiny{}), nodeProvider, nil
	})
	notify := <-nodeProvider.notify
	given.Labels["changed"] = "again"
	notify(given)
	eventually(t, "the notified label", func() bool {
		got, err := client.CoreV1().Nodes().Get(t.Context(), "vk", metav1.GetOptions{})
		if err != nil || got.Labels["changed"] != "again" {
			return false
		}
		if got.Labels[corev1.LabelHostname] != "vk" || got.Labels[corev1.LabelOSStable] != "linux" || got.Labels[corev1.LabelArchStable] != "arm64" {
			t.Fatalf("the node has the labels %v", got.Labels)
		}
		return true
	})
}

func TestEventsReachTheAPI(t *testing.T) {
	client := fake.NewSimpleClientset()
	start(t, client, making(&failing{}))
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod("p", "vk"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an event", func() bool {
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0 && events.Items[0].Source.Component != ""
	})
}

// failing is tiny without room.
type failing struct{ tiny }

func (*failing) CreatePod(context.Context, *corev1.Pod) error { return errors.New("no room") }

func TestOwnEventRecorder(t *testing.T) {
	recorder := record.NewFakeRecorder(100)
	start(t, fake.NewSimpleClientset(pod("p", "vk")), making(&failing{}), func(cfg *nodeutil.NodeConfig) error {
		cfg.EventRecorder = recorder
		return nil
	})
	select {
	case <-recorder.Events:
	case <-time.After(deadline):
		t.Error("no event")
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	client := fake.NewSimpleClientset()
	n, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(client), handledBy(answering("")), func(cfg *nodeutil.NodeConfig) error {
		cfg.HTTPListenAddr = taken.Addr().String()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = n.Run(testContext(t))
	wantError(t, err, "cannot serve the kubelet API", "address already in use", taken.Addr().String())
	if got := n.WaitReady(t.Context(), time.Second); got != err {
		t.Errorf("WaitReady returned %v, Run %v", got, err)
	}
	if n.Err() != err {
		t.Errorf("Err is %v", n.Err())
	}
	if len(client.Actions()) > 0 {
		t.Errorf("the API was asked: %v", client.Actions())
	}
}

// away is a client whose API server does not answer lists of pods.
func away() *fake.Clientset {
	client := fake.NewSimpleClientset()
	fakeapi.React(&client.Fake, "list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	return client
}

func TestWaitReadyGivesUp(t *testing.T) {
	n, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(away()))
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, n)
	err = n.WaitReady(t.Context(), 20*time.Millisecond)
	wantError(t, err, "node vk is not ready after 20ms")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not DeadlineExceeded", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("changed my mind")
	cancel(cause)
	if err := n.WaitReady(ctx, 0); err != cause {
		t.Errorf("got %v", err)
	}

	waiting := make(chan error, 1)
	go func() { waiting <- n.WaitReady(t.Context(), 0) }()
	if err := stop(); err != nil {
		t.Errorf("a node that is stopped before it is ready returns %v", err)
	}
	wantError(t, <-waiting, "has ended")
}

func TestRunAfterTheEnd(t *testing.T) {
	n, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(fake.NewSimpleClientset()), listenAnywhere, handledBy(answering("")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx); err != nil {
		t.Errorf("got %v", err)
	}
}

// A stream that was taken over from the server ends before Run does.
func TestRunWaitsForStreams(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	stream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		close(entered)
		<-r.Context().Done()
		time.Sleep(50 * time.Millisecond) // the last things to tidy up
		close(left)
	})
	client := fake.NewSimpleClientset()
	_, stop := start(t, client, making(&tiny{}), handledBy(stream))
	address := fmt.Sprintf("127.0.0.1:%d", getNode(t, client, "vk").Status.DaemonEndpoints.KubeletEndpoint.Port)
	conn, err := tls.Dial("tcp", address, insecure())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	<-entered
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
	default:
		t.Error("Run has returned, and the stream goes on")
	}
}

func TestRegistrationRefused(t *testing.T) {
	client := fake.NewSimpleClientset()
	fakeapi.React(&client.Fake, "create", "nodes", forbidden)
	n, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(client))
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, n.Run(testContext(t)), "cannot register node vk", "forbidden")
}

func forbidden(action clienttesting.Action) (bool, runtime.Object, error) {
	return true, nil, apierrors.NewForbidden(corev1.Resource(action.GetResource().Resource), "vk", errors.New("not yours"))
}
