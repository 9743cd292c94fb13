package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/leader"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// election returns the configuration of --leader-elect.
func (o *options) election(client kubernetes.Interface) leader.Election {
	return leader.Election{
		Client:        client.CoordinationV1(),
		Namespace:     o.electNamespace,
		Name:          leaderLease(o.nodeName),
		Identity:      identity(),
		LeaseDuration: o.electDuration,
	}
}

// leaderLease is the name of the lease of --leader-elect.
func leaderLease(nodeName string) string { return nodeName + "-leader" }

// sharding returns the configuration of --shards.
func (o *options) sharding(client kubernetes.Interface) nodeutil.Shards {
	return nodeutil.Shards{
		Client:        client,
		Namespace:     o.electNamespace,
		Name:          o.nodeName,
		Count:         o.shards,
		Identity:      identity(),
		LeaseDuration: o.electDuration,
	}
}

// identity distinguishes this process from others, also from earlier ones of this host.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

// checkElection refuses flags that contradict --leader-elect or --shards.
func (o *options) checkElection() error {
	switch {
	case o.shards < 0:
		return fmt.Errorf("--shards is %d: it must not be negative", o.shards)
	case o.shards > 0 && o.leaderElect:
		return fmt.Errorf("--shards and --leader-elect are given: use --shards for many nodes, and --leader-elect for one")
	case o.shards > 0 && o.nodes == 0 && o.poolsFile == "":
		return fmt.Errorf("--shards is %d, but there is one node only: give --nodes or --config for many, or use --leader-elect", o.shards)
	case o.shards > o.nodes && o.poolsFile == "":
		return fmt.Errorf("--shards is %d, but there are only %d nodes: give more --nodes, or fewer shards", o.shards, o.nodes)
	case o.leaderElect && (o.nodes > 0 || o.poolsFile != ""):
		return fmt.Errorf("--leader-elect is for one node: with --nodes and --config use --shards, with 1 for one active process")
	case o.leaderElect && o.bootstrap != "":
		return fmt.Errorf("--leader-elect and --bootstrap-kubeconfig are given: a node with an identity of its own may not write the leader's lease; give --kubeconfig, for a service account")
	case o.shards > 0 && o.startupTimeout > 0:
		return fmt.Errorf("--startup-timeout does not go with --shards: a process may have none for long")
	case o.electDuration < 3*time.Second || o.electDuration%time.Second != 0:
		return fmt.Errorf("--leader-elect-lease-duration is %v: use whole seconds, at least 3s", o.electDuration)
	}
	return nil
}
