package vkubelet_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/vkubelet"
)

// emptyProvider is the least that a Provider is. This one takes nothing on.
type emptyProvider struct{}

func (emptyProvider) CreatePod(context.Context, *corev1.Pod) error {
	return errdefs.InvalidInput("full")
}
func (emptyProvider) UpdatePod(context.Context, *corev1.Pod) error { return nil }
func (emptyProvider) DeletePod(context.Context, *corev1.Pod) error {
	return errdefs.NotFound("no such pod")
}

func (emptyProvider) GetPod(context.Context, string, string) (*corev1.Pod, error) { return nil, nil }

func (emptyProvider) GetPodStatus(context.Context, string, string) (*corev1.PodStatus, error) {
	return nil, nil
}

func (emptyProvider) GetPods(context.Context) ([]*corev1.Pod, error) { return nil, nil }

// A virtual node is a Node, which is the object that the scheduler sees, and a
// Server, which takes the pods to the provider.
func Example() {
	var client kubernetes.Interface = fake.NewClientset()
	ctx, cancel := context.WithCancel(context.Background())

	server := vkubelet.New(vkubelet.Config{Client: client, NodeName: "cloud", Provider: emptyProvider{}})
	node, err := vkubelet.NewNode(vkubelet.NaiveNodeProvider{},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cloud"}},
		client.CoordinationV1().Leases(corev1.NamespaceNodeLease), client.CoreV1().Nodes())
	if err != nil {
		fmt.Println(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- server.Run(ctx) }()
	go func() { ended <- node.Run(ctx) }()
	<-server.Ready()
	<-node.Ready()
	fmt.Println("the node takes pods")

	cancel()
	fmt.Println(<-ended, <-ended)
	// Output:
	// the node takes pods
	// <nil> <nil>
}

// A provider that reads ConfigMaps itself can share its informers with the
// server.
func ExampleNewResourceManagerFromInformers() {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	rm, err := vkubelet.NewResourceManagerFromInformers(core.Pods(), core.Secrets(), core.ConfigMaps(), core.Services())
	if err != nil {
		fmt.Println(err)
	}
	server := vkubelet.New(vkubelet.Config{
		Client: client, NodeName: "cloud", Provider: emptyProvider{},
		ResourceManager: rm, PodInformer: core.Pods(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel()

	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	<-server.Ready()
	fmt.Println(len(rm.GetPods()), "pods")
	cancel()
	<-ended
	// Output: 0 pods
}

func ExampleAttachPodRoutes() {
	mux := http.NewServeMux()
	vkubelet.AttachPodRoutes(emptyProvider{}, mux)

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/containerLogs/default/web/main", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 501 provider does not implement GetContainerLogs (see node/api.ContainerLogsHandlerFunc)
}

// The routes of a Server are only about the pods of its node.
func ExampleServer_AttachPodRoutes() {
	server := vkubelet.New(vkubelet.Config{Client: fake.NewClientset(), NodeName: "cloud", Provider: emptyProvider{}})
	mux := http.NewServeMux()
	server.AttachPodRoutes(mux)

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 503 the node does not know its pods yet
}
