package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/leader"
	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/settings"
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
func identity() string { return hostname() + "_" + string(uuid.NewUUID()) }

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// checkElection refuses settings that contradict a leader or shards.
func (o *options) checkElection() (wrong []settings.Mistake) {
	add := func(names []string, format string, args ...any) {
		wrong = append(wrong, o.settings.Mistake(names, format, args...))
	}
	name := o.settings.Name
	leader, shards := name("leader-elect"), name("shards")
	switch {
	case o.shards <= 0:
	case o.leaderElect:
		add([]string{"shards", "leader-elect"}, "%s and %s are given: use %s for many nodes, and %s for one", shards, leader, shards, leader)
	case o.nodes == 0 && o.poolsFile == "":
		add([]string{"shards"}, "%s is %d, but there is one node only: give --nodes or --config for many, or use --leader-elect", shards, o.shards)
	case o.shards > o.nodes && o.poolsFile == "":
		add([]string{"shards", "nodes"}, "%s is %d, but there are only %d nodes: give more %s, or fewer shards", shards, o.shards, o.nodes, name("nodes"))
	}
	if o.shards > 0 && o.startupTimeout > 0 {
		add([]string{"startup-timeout", "shards"}, "%s does not go with %s: a process may have none for long", name("startup-timeout"), shards)
	}
	if o.leaderElect && (o.nodes > 0 || o.poolsFile != "") {
		add([]string{"leader-elect", "nodes"}, "%s is for one node: with %s and --config use %s, with 1 for one active process", leader, name("nodes"), shards)
	}
	if o.leaderElect && o.bootstrap != "" {
		add([]string{"leader-elect", "bootstrap-kubeconfig"}, "%s and %s are given: a node with an identity of its own may not write the leader's lease; give --kubeconfig, for a service account", leader, name("bootstrap-kubeconfig"))
	}
	return wrong
}
