package remote

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// flood is a provider that sends statuses which cannot be read, and then one that can.
type flood struct {
	pb.ProviderClient
	grpc.ServerStreamingClient[pb.WatchPodsResponse]
	left int
}

func (f *flood) WatchPods(context.Context, *pb.WatchPodsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pb.WatchPodsResponse], error) {
	return f, nil
}

func (f *flood) Recv() (*pb.WatchPodsResponse, error) {
	f.left--
	out := &pb.WatchPodsResponse{Pod: &pb.PodRef{Namespace: "default", Name: "a", Uid: "1"}, Status: []byte("nonsense")}
	switch {
	case f.left == 0:
		out.Status = []byte(`{"phase": "Running"}`)
	case f.left < 0:
		return nil, io.EOF
	}
	return out, nil
}

// Statuses that cannot be read neither hide others nor fill the log.
func TestStatusesThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), log.FromSlog(slog.New(slog.NewTextHandler(&lines, nil)))))
		var found []*corev1.Pod
		w := watcher{&Provider{client: &flood{left: 10000}}}
		w.NotifyPods(ctx, func(pod *corev1.Pod) { found = append(found, pod) })
		time.Sleep(time.Millisecond)
		cancel()
		synctest.Wait()
		if len(found) != 1 || found[0].Status.Phase != corev1.PodRunning {
			t.Errorf("%d statuses are shown", len(found))
		}
		if n := bytes.Count(lines.Bytes(), []byte("cannot be read")); n == 0 || n > 10 {
			t.Errorf("%d lines are logged", n)
		}
	})
}
