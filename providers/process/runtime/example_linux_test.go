package runtime_test

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

func Example() {
	// First of all in main: containers run under this same executable.
	runtime.MaybeShim()

	ctx := context.Background()
	r, err := runtime.New(ctx, runtime.Config{Root: "/var/lib/virtual-kubelet/node-1/runtime", NodeIPs: []string{"192.0.2.7"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = r.Close(ctx) }()

	pod := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"},
		LogDirectory: "/var/log/pods/default_web_1",
	}
	sandbox, err := r.RunPodSandbox(ctx, pod, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	container, err := r.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: "busybox"},
		Command:  []string{"sh", "-c", "echo hello"},
		LogPath:  "main/0.log",
	}, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.StartContainer(ctx, container))
}
