package v1alpha1_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// small answers two calls: what it does not have is UNIMPLEMENTED.
type small struct{ pb.UnimplementedProviderServer }

func (small) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	return &pb.GetInfoResponse{Name: "small"}, nil
}

func (small) GetPod(_ context.Context, in *pb.GetPodRequest) (*pb.GetPodResponse, error) {
	return nil, status.Errorf(codes.NotFound, "pod %s is not here", in.GetPod().GetName())
}

// A server of the protocol, and a client. Package server has one for each provider in Go.
func Example() {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	pb.RegisterProviderServer(server, small{})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient("passthrough:small",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	client := pb.NewProviderClient(conn)
	info, err := client.GetInfo(context.Background(), &pb.GetInfoRequest{NodeName: "virtual-1"})
	fmt.Println(info.GetName(), err)
	_, err = client.GetPod(context.Background(), &pb.GetPodRequest{Pod: &pb.PodRef{Name: "one"}})
	fmt.Println(status.Code(err), err)
	// Output:
	// small <nil>
	// NotFound rpc error: code = NotFound desc = pod one is not here
}
