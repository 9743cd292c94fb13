package main

import (
	"context"
	"io"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

type closer func() error

func (c closer) Close() error { return c() }

// Another process does not take the node before the provider is closed: it would find the state
// directory in use.
func TestNodeIsGivenBackOnceItsProviderIsClosed(t *testing.T) {
	client := fake.NewSimpleClientset()
	holder := func() string {
		lease, err := nodeutil.NodeLeaseV1Client(client).Get(context.Background(), "virtual-kubelet", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Annotations["virtual-kubelet.io/holder"]
	}
	ctx, cancel := context.WithCancel(t.Context())
	closed := false
	entry := providers["mock"]
	defer func() { providers["mock"] = entry }()
	other := entry
	other.new = func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
		provider, nodeProvider, c, err := entry.new(init)
		cancel()
		return provider, nodeProvider, closer(func() error {
			closed = true
			if holder() == "" {
				t.Error("the node is free while its provider is closed")
			}
			return c.Close()
		}), err
	}
	providers["mock"] = other
	o := parsed(t, "--provider", "mock", "--nodename", "virtual-kubelet", "--listen-address", "127.0.0.1", "--port", "0")
	v := &virtualNode{options: o, client: client, address: "192.0.2.1", auth: headerAuth{}, standby: newStandby()}
	if err := v.run(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := holder(); !closed || got != "" {
		t.Errorf("after the end %q has the node, and its provider is closed: %v", got, closed)
	}
}
