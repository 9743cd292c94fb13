package nodeutil_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// A provider with six methods is a node. What it cannot do answers 501.
func ExampleNewNode() {
	client := fake.NewSimpleClientset() // in earnest: nodeutil.ClientsetFromEnv

	mux := http.NewServeMux()
	n, err := nodeutil.NewNode("my-node",
		func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			cfg.Node.Labels["example.org/backend"] = "tiny"
			return nodeutil.AsProvider(&tiny{}), nil, nil
		},
		nodeutil.WithClient(client),
		func(cfg *nodeutil.NodeConfig) error {
			cfg.HTTPListenAddr = "127.0.0.1:0"
			// In earnest: the Auth that nodeutil.WebhookAuth returns.
			cfg.Handler = api.InstrumentHandler(nodeutil.WithAuth(nodeutil.NoAuth(), mux))
			return nil
		},
		nodeutil.AttachProviderRoutes(mux),
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = n.Run(ctx) }() // ends when ctx does; its error is n.Err()
	if err := n.WaitReady(ctx, time.Minute); err != nil {
		fmt.Println(err)
	}
	registered, err := client.CoreV1().Nodes().Get(ctx, "my-node", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(registered.Name, registered.Labels["example.org/backend"])

	cancel()
	<-n.Done()
	fmt.Println(n.Err())
	// Output:
	// my-node tiny
	// <nil>
}
