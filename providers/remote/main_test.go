package remote_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// serve serves a provider until the end of the test, and returns its address.
func serve(t *testing.T, s *server.Server) (address string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "provider.sock")
	listen(t, s, socket)
	return "unix://" + socket
}

// listen serves a provider until stop, or the end of the test.
func listen(t *testing.T, s *server.Server, socket string) (stop func()) {
	t.Helper()
	grpcServer := grpc.NewServer(s.ServerOptions()...)
	s.Register(grpcServer)
	return serveOn(t, grpcServer, socket)
}

func serveOn(t *testing.T, grpcServer *grpc.Server, socket string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- grpcServer.Serve(listener) }()
	stop = sync.OnceFunc(func() {
		grpcServer.Stop()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

func encoded(t *testing.T, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
