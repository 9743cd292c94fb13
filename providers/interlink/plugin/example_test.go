package plugin_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/plugin"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

// A plugin that runs pods by the mock provider. A program listens on a socket, instead of
// what httptest does, and names it in the configuration of the interLink API server.
func Example() {
	ctx := log.WithLogger(context.Background(), log.FromSlog(slog.New(slog.DiscardHandler)))
	p, err := mock.New(mock.Config{NodeName: "interlink"})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	server, err := plugin.New(ctx, plugin.Options{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p.ConfigureNode(ctx, init.Node)
			return nodeutil.AsProvider(p), p, nil
		},
	})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	listener := httptest.NewServer(server)
	defer listener.Close()

	response, err := listener.Client().Post(listener.URL+"/create", "application/json", strings.NewReader(`{"pod": {
		"metadata": {"namespace": "default", "name": "hello", "uid": "0e5f5d7a-8a1e-4f0e-9d62-5a3c8f2f2b10"},
		"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}`))
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(text), err)
	// Output:
	// 200 {"PodUID":"0e5f5d7a-8a1e-4f0e-9d62-5a3c8f2f2b10","PodJID":"0e5f5d7a-8a1e-4f0e-9d62-5a3c8f2f2b10"} <nil>
}
