package podengine_test

import (
	"context"
	"errors"
	"fmt"

	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// connect returns what runs containers: anything with the Go interfaces of the CRI.
func connect() (internalapi.RuntimeService, internalapi.ImageManagerService, error) {
	return nil, nil, errors.New("no runtime here")
}

// A provider of whole pods over a runtime of containers.
func Example() {
	n, err := nodeutil.NewNode("edge-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		containers, images, err := connect()
		if err != nil {
			return nil, nil, err
		}
		engine, err := podengine.New(context.Background(), podengine.Config{
			Node:     convert.Node{Name: cfg.Node.Name, LogRoot: "/var/log/pods"},
			Runtime:  containers,
			Images:   images,
			Root:     "/var/lib/edge-1",
			Objects:  cfg.Objects,
			Services: cfg.Services,
			Tokens:   volume.Client{Interface: cfg.Client},
			Events:   cfg.Events,
			HostIPs:  func() []string { return []string{"192.0.2.7"} },
		})
		if err != nil {
			return nil, nil, err
		}
		return nodeutil.AsProvider(engine), nil, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Run(context.Background()))
}
