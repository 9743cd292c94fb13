package remote_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote"
)

// serveAnswers serves a provider whose node is reported once answer is done: that returns true for how a watch ends.
func serveAnswers(t *testing.T, answer func() (error, bool)) (address string, stop func()) {
	t.Helper()
	s := serverOf(t, newPlain(), newPlain())
	grpcServer := grpc.NewServer(append(s.ServerOptions(), grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if strings.HasSuffix(info.FullMethod, "/WatchNode") {
				if err, ends := answer(); ends {
					return err
				}
			}
			return handler(srv, stream)
		}))...)
	s.Register(grpcServer)
	socket := filepath.Join(t.TempDir(), "provider.sock")
	return "unix://" + socket, serveOn(t, grpcServer, socket)
}

// A server that ends just when the node has found it is waited for, like one that is not there yet: the process of
// the node does not end for it.
func TestServerThatEndsInTheMiddleOfAStart(t *testing.T) {
	for name, how := range map[string]error{
		"unavailable": status.Error(codes.Unavailable, "the server ends"),
		"canceled":    status.Error(codes.Canceled, "context canceled"),
		"without one": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ended atomic.Bool
			address, _ := serveAnswers(t, func() (error, bool) { return how, ended.CompareAndSwap(false, true) })
			connect(t, address)
			if !ended.Load() {
				t.Error("the node has not asked how it is")
			}
		})
	}
}

// begin begins to use a provider, and returns what New says and what it logs. first is called with the first line.
func begin(t *testing.T, address string, first func()) (logged string, err error) {
	t.Helper()
	var lines bytes.Buffer
	handler := slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
		if lines.Len() == 0 {
			first()
		}
		return lines.Write(line)
	}), &slog.HandlerOptions{Level: slog.LevelWarn})
	ctx := log.WithLogger(t.Context(), log.FromSlog(slog.New(handler)))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual-1"}}
	_, _, err = remote.New(ctx, nodeutil.ProviderConfig{Node: n}, remote.Config{Address: address, StartTimeout: metav1.Duration{Duration: 3 * time.Second}})
	return lines.String(), err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The log and the error of a start say why the provider could not be had, also if there is nobody at the end.
func TestAStartThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	address, stop := serveAnswers(t, func() (error, bool) { return status.Error(codes.Unavailable, "no machines today"), true })
	logged, err := begin(t, address, stop)
	if !strings.Contains(logged, "no machines today") || strings.Count(logged, "\n") != 1 {
		t.Errorf("the log is %q", logged)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no machines today") {
		t.Errorf("the error is %v", err)
	}
}

// What does not pass is not waited for.
func TestAStartThatCannotSucceed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	address, _ := serveAnswers(t, func() (error, bool) {
		asked.Add(1)
		return status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)"), true
	})
	if _, err := begin(t, address, func() {}); err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("the error is %v", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times, want 1", n)
	}
}
