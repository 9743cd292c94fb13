// Package machinetest has what tests of provider machine and of its drivers share: a machine that is a
// goroutine, in which a real agent serves the mock provider.
package machinetest

import (
	"context"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

// RunAgent runs the agent of a machine with user data until ctx ends. It listens at an address of this
// host, and serves what newPods returns once the node knows it.
func RunAgent(ctx context.Context, t *testing.T, userData, address string, key []byte, newPods func(mock.Config) (nodeutil.Provider, node.NodeProvider, error)) {
	bootstrap, err := agent.ParseBootstrap([]byte(userData))
	if err != nil {
		t.Error(err)
		return
	}
	err = agent.Run(ctx, agent.Options{
		Bootstrap: bootstrap, Key: key, Listen: net.JoinHostPort(address, strconv.Itoa(bootstrap.Port)), Name: "mock",
		NewProvider: func(_ context.Context, init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			pods, nodeProvider, err := newPods(mock.Config{NodeName: init.Node.Name, HostIP: address, KeepJobs: true})
			return pods, nodeProvider, nil, err
		},
	})
	if err != nil && ctx.Err() == nil {
		t.Logf("an agent has ended: %v", err)
	}
}

// FreePort returns a port on which nothing listens.
func FreePort(t *testing.T) int {
	t.Helper()
	ports, err := daemon.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

// Eventually waits until check returns no error, for a minute.
func Eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
