package cri

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

type fakeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
}

func (fakeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (fakeService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

func (fakeService) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{}, nil
}

// The clients are made before the runtime is up: calls fail until it is, as
// unavailable, and then succeed.
func TestTheRuntimeComesUpLater(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	cfg := Config{Endpoint: "unix://" + socket}
	cfg.complete("n1")
	p := &Provider{}
	p.connect(t.Context(), cfg)
	t.Cleanup(func() { _ = p.disconnect(context.Background()) })
	if _, err := p.runtime.Version(t.Context(), "v1"); !errdefs.IsUnavailable(err) {
		t.Errorf("without a runtime: %v, want an error of class Unavailable", err)
	}
	if _, err := p.images.ListImages(t.Context(), nil); !errdefs.IsUnavailable(err) {
		t.Errorf("without a runtime: %v, want an error of class Unavailable", err)
	}

	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, fakeService{})
	runtimeapi.RegisterImageServiceServer(server, fakeService{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })

	for { // until the test's own deadline
		version, err := p.runtime.Version(t.Context(), "v1")
		if err == nil {
			if version.RuntimeName != "fake" {
				t.Errorf("the version is %v", version)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for {
		if _, err := p.images.ListImages(t.Context(), nil); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := p.disconnect(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := p.runtime.Version(t.Context(), "v1"); err == nil {
		t.Error("a client that was closed answers")
	}
}
