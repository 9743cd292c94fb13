package containerd_test

import (
	"context"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

func ExampleStart() {
	runtime, err := containerd.Start(context.Background(), containerd.Options{
		Binary:       "bin/containerd-up",
		SandboxImage: "localhost/pause:latest",
		Images:       []string{"bin/conformance/images.tar"},
	})
	if err != nil {
		fmt.Println(err) // find containerd-up (run "make containerd-up"): ...
		return
	}
	defer runtime.Stop()

	fmt.Println(runtime.Endpoint()) // unix:///tmp/containerd-123/containerd.sock
}
