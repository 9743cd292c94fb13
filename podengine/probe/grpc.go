package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func (p *Prober) probeGRPC(ctx context.Context, target Target, action *corev1.GRPCAction, timeout time.Duration) (Outcome, string, error) {
	address, err := target.address("", intstr.FromInt32(action.Port))
	if err != nil {
		return Unknown, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dial(ctx, "tcp", address)
	switch {
	case err != nil && ctx.Err() != nil:
		return Failure, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, ctx.Err()), nil
	case err != nil:
		return Failure, fmt.Sprintf("error: failed to connect service at %q: %v", address, err), nil
	}
	defer conn.Close()

	client, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent("kube-probe/"+p.version),
		grpc.WithContextDialer(oneShot(conn)),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return Unknown, "", err
	}
	defer client.Close()
	answer, err := healthpb.NewHealthClient(client).Check(ctx, &healthpb.HealthCheckRequest{Service: ptr.Deref(action.Service, "")})
	if err != nil {
		return Failure, describe(err, timeout), nil
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return Failure, fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus()), nil
	}
	return Success, "service healthy", nil
}

// describe puts the failure of a health check into words.
func describe(err error, timeout time.Duration) string {
	switch s := status.Convert(err); s.Code() {
	case codes.Unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + s.Message()
	case codes.DeadlineExceeded:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	default:
		return fmt.Sprintf("error: health rpc probe failed: %v", err)
	}
}

// oneShot hands out conn, once: a probe makes one connection and no other.
func oneShot(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	var used atomic.Bool
	return func(context.Context, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errors.New("the connection broke")
		}
		return conn, nil
	}
}
