package image_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/image"
)

// empty is a runtime without images.
type empty struct{ cri.ImageManagerService }

func (empty) ImageStatus(context.Context, *runtimeapi.ImageSpec, bool) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{}, nil
}

func Example() {
	puller := image.NewPuller(image.PullerOptions{
		Images: empty{},
		Event: func(pod *corev1.Pod, container, eventType, reason, message string) {
			fmt.Println(eventType, reason, message)
		},
	})
	defer puller.Close()

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
	container := &corev1.Container{Name: "nginx", Image: "nginx:1", ImagePullPolicy: corev1.PullNever}
	_, err := puller.Ensure(context.Background(), image.ForContainer(pod, container, nil, nil))
	fmt.Println(err)
	// Output:
	// Warning ErrImageNeverPull Container image "nginx:1" is not present with pull policy of Never
	// Warning Failed Error: ErrImageNeverPull
	// ErrImageNeverPull: Container image "nginx:1" is not present with pull policy of Never
}
