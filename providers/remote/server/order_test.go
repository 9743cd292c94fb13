package server_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// outlasting is a provider that keeps of which cluster its pods are, and notifies of them.
type outlasting struct {
	nodetest.Polled
	calls []string
}

func (*outlasting) ClusterUID() (types.UID, string, error) { return "", "", nil }
func (*outlasting) KeepClusterUID(types.UID) error         { return nil }

func (p *outlasting) NotifyPods(context.Context, func(*corev1.Pod)) {
	p.calls = append(p.calls, "NotifyPods")
}

func (p *outlasting) GetPods(context.Context) ([]*corev1.Pod, error) {
	p.calls = append(p.calls, "GetPods")
	return nil, nil
}

// NotifyPods comes before any other method, as in the virtual kubelet itself.
func TestNotifyPodsComesFirst(t *testing.T) {
	p := &outlasting{Polled: nodetest.New().Polled()}
	server.New(t.Context(), nodeutil.AsProvider(p), nil, server.Options{})
	if want := []string{"NotifyPods", "GetPods"}; !slices.Equal(p.calls, want) {
		t.Errorf("calls: %q, want %q", p.calls, want)
	}
}
