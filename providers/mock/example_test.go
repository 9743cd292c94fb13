package mock_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func Example() {
	cfg, err := mock.ParseConfig([]byte(`{"vk-mock-1": {"cpu": "2", "memory": "32Gi"}}`), "vk-mock-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := mock.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()

	ctx := context.Background()
	err = p.CreatePod(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
	})
	status, _ := p.GetPodStatus(ctx, "default", "web")
	fmt.Println(err, status.Phase, status.PodIP)
	// Output: <nil> Running 10.244.0.1
}
