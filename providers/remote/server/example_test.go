package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// A process that serves a provider on a unix socket.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "provider-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	provider, err := mock.New(mock.Config{NodeName: "virtual-1"})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-1", Labels: map[string]string{}, Annotations: map[string]string{}}}
	provider.ConfigureNode(ctx, node)
	socket := filepath.Join(dir, "provider.sock")
	listener, err := server.Listen(socket)
	if err != nil {
		panic(err)
	}
	s := server.New(ctx, provider, provider, server.Options{Name: "mock", Node: node})
	grpcServer := grpc.NewServer(s.ServerOptions()...)
	s.Register(grpcServer)
	go func() { _ = grpcServer.Serve(listener) }()
	defer grpcServer.Stop()

	// The virtual kubelet does this, with the address in its configuration.
	here := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-1", Labels: map[string]string{}, Annotations: map[string]string{}}}
	_, health, err := remote.New(ctx, nodeutil.ProviderConfig{Node: here}, remote.Config{Address: "unix://" + socket})
	if err != nil {
		panic(err)
	}
	fmt.Println(health.Ping(ctx), here.Status.Capacity.Pods())
	// Output: <nil> 1k
}
