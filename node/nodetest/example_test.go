package nodetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// A backend that has no room for a pod: the pod fails, and is not created again.
func Example() {
	backend := nodetest.New()
	backend.Script(func(s *nodetest.Script) {
		s.OnCreate = func(context.Context, *corev1.Pod) error { return errdefs.AsPermanent(errors.New("no such size")) }
	})

	ctx, stop := context.WithCancel(context.Background())
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, time.Minute)
	core := factory.Core().V1()
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient:         client.CoreV1(),
		PodInformer:       core.Pods(),
		ConfigMapInformer: core.ConfigMaps(),
		SecretInformer:    core.Secrets(),
		ServiceInformer:   core.Services(),
		EventRecorder:     record.NewFakeRecorder(100),
		Provider:          backend.Notifying(),
	})
	if err != nil {
		fmt.Println(err)
	}
	factory.Start(ctx.Done())
	go controller.Run(ctx, 1)
	<-controller.Ready()

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
	for pod.Status.Phase != corev1.PodFailed {
		time.Sleep(10 * time.Millisecond)
		if pod, err = client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(pod.Status.Phase, pod.Status.Message)
	fmt.Println(backend.TakeCalls("create"))

	stop()
	<-controller.Done()
	factory.Shutdown()
	// Output:
	// Failed no such size
	// [create web 1]
}
