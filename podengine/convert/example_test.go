package convert_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
)

// What a runtime is asked to start for a pod with one container.
func ExampleNode() {
	node := convert.Node{Name: "vk", LogRoot: "/var/log/pods"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "8f2c"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx:1"}}},
	}
	sandbox, err := node.Sandbox(pod, convert.SandboxOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	container, err := node.Container(pod, &pod.Spec.Containers[0], convert.ContainerOptions{Attempt: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sandbox.LogDirectory + "/" + container.LogPath)
	fmt.Println(convert.IdentityOf(container.Labels, container.Annotations))
	// Output:
	// /var/log/pods/shop_web_8f2c/app/1.log
	// {shop web 8f2c app vk}
}
