package node_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// memory is a provider that "runs" pods by remembering them. It is no
// PodNotifier, hence it is asked for their statuses.
type memory struct {
	mu   sync.Mutex
	pods map[string]*corev1.Pod
}

func (m *memory) CreatePod(_ context.Context, pod *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"}
	m.pods[pod.Namespace+"/"+pod.Name] = pod
	return nil
}

func (m *memory) UpdatePod(context.Context, *corev1.Pod) error { return nil }

func (m *memory) DeletePod(_ context.Context, pod *corev1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, pod.Namespace+"/"+pod.Name)
	return nil
}

func (m *memory) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pod := m.pods[namespace+"/"+name]; pod != nil {
		return pod.DeepCopy(), nil
	}
	return nil, errdefs.NotFoundf("no pod %s/%s", namespace, name)
}

func (m *memory) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := m.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (m *memory) GetPods(context.Context) ([]*corev1.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(m.pods))
	for _, pod := range m.pods {
		pods = append(pods, pod.DeepCopy())
	}
	return pods, nil
}

func ExampleNewPodController() {
	ctx, stop := context.WithCancel(context.Background())
	client := fake.NewClientset() // in real life one for an API server
	factory := informers.NewSharedInformerFactory(client, time.Minute)
	core := factory.Core().V1()

	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient:         client.CoreV1(),
		PodInformer:       core.Pods(), // in real life of this node's pods only
		ConfigMapInformer: core.ConfigMaps(),
		SecretInformer:    core.Secrets(),
		ServiceInformer:   core.Services(),
		EventRecorder:     record.NewFakeRecorder(100),
		Provider:          &memory{pods: map[string]*corev1.Pod{}},
	})
	if err != nil {
		fmt.Println(err)
	}
	factory.Start(ctx.Done())
	go controller.Run(ctx, 10)
	<-controller.Ready()

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
	for pod.Status.Phase != corev1.PodRunning {
		time.Sleep(10 * time.Millisecond)
		if pod, err = client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(pod.Name, pod.Status.Phase, pod.Status.PodIP)

	stop()
	<-controller.Done()
	factory.Shutdown()
	// Output: web Running 10.0.0.7
}

func ExampleNewNodeController() {
	ctx, stop := context.WithCancel(context.Background())
	client := fake.NewClientset()
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)

	controller, err := node.NewNodeController(
		node.NaiveNodeProvider{},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{"type": "virtual-kubelet"}}},
		client.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(leases, node.DefaultLeaseDuration),
	)
	if err != nil {
		fmt.Println(err)
	}
	go controller.Run(ctx)
	<-controller.Ready()
	registered, err := client.CoreV1().Nodes().Get(ctx, "vk", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(registered.Name, registered.Status.Conditions[0].Type, registered.Status.Conditions[0].Status)

	stop() // and the node says that it is not ready
	<-controller.Done()
	fmt.Println(controller.Err())
	// Output:
	// vk Ready True
	// <nil>
}
