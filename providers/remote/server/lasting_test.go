package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// keeping keeps the contexts of its calls.
type keeping struct {
	nodetest.Polled
	contexts map[string]context.Context
}

func (p *keeping) CreatePod(ctx context.Context, _ *corev1.Pod) error {
	p.contexts["create"] = ctx
	return nil
}

func (p *keeping) UpdatePod(ctx context.Context, _ *corev1.Pod) error {
	p.contexts["update"] = ctx
	return nil
}

func (p *keeping) DeletePod(ctx context.Context, _ *corev1.Pod) error {
	p.contexts["delete"] = ctx
	return nil
}

// A provider may go on with the contexts of its calls when they have returned, here as in the virtual kubelet itself.
func TestContextsOfCallsOutlastThem(t *testing.T) {
	provider := &keeping{nodetest.New().Polled(), map[string]context.Context{}}
	serving, end := context.WithCancelCause(t.Context())
	s := server.New(serving, nodeutil.AsProvider(provider), nil, server.Options{})
	pod, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	request, cancel := context.WithCancel(t.Context())
	_, created := s.CreatePod(request, &pb.CreatePodRequest{Pod: pod})
	_, updated := s.UpdatePod(request, &pb.UpdatePodRequest{Pod: pod})
	_, deleted := s.DeletePod(request, &pb.DeletePodRequest{Pod: pod})
	if err := errors.Join(created, updated, deleted); err != nil {
		t.Fatal(err)
	}
	cancel() // as gRPC does when a call has returned
	if got := slices.Sorted(maps.Keys(provider.contexts)); len(got) != 3 {
		t.Fatalf("calls: %q", got)
	}
	for call, ctx := range provider.contexts {
		if ctx.Err() != nil {
			t.Errorf("the context of %s has ended with the call", call)
		}
	}
	over := errors.New("the server ends")
	end(over)
	for call, ctx := range provider.contexts {
		<-ctx.Done()
		if got := context.Cause(ctx); got != over {
			t.Errorf("the context of %s has ended with %v", call, got)
		}
	}
}
