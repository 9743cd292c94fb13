package relay_test

import (
	"context"
	"fmt"

	criclient "k8s.io/cri-client/pkg"

	"github.com/virtual-kubelet/virtual-kubelet/providers/cri/relay"
)

// Calls to a runtime that go on when the process is killed that made them.
func Example() {
	relay.MaybeRelay() // first of all: the relay is a process of this same executable

	r, err := relay.Start(context.Background(), "/var/lib/edge-1", "unix:///run/containerd/containerd.sock")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = r.Close() }()
	runtime, err := criclient.NewRemoteRuntimeService(context.Background(), r.Endpoint(), 0, nil, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runtime.Version(context.Background(), ""))
}
