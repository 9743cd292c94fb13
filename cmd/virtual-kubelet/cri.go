//go:build !chosen_providers || provider_cri

package main

import (
	"context"
	"io"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/cri"
	"github.com/virtual-kubelet/virtual-kubelet/providers/cri/relay"
)

func init() {
	providers["cri"] = criEntry
	atStart = append(atStart, relay.MaybeRelay) // it starts this program between itself and the runtime
}

var criEntry = providerEntry{
	summary: "pods in containers, by a runtime on this machine that speaks the CRI, such as containerd",
	config: `YAML or JSON; all fields are optional (providers/cri/README.md has the rest):

  {"endpoint": "unix:///run/containerd/containerd.sock",
   "root": "/var/lib/virtual-kubelet", "logRoot": "/var/log/pods",
   "clusterDNS": ["10.96.0.10"], "hostPaths": ["/srv/data"],
   "cgroupParent": "/pods", "cpu": "4", "memory": "16Gi", "pods": "110"}
`,
	sample:   (*cri.Provider)(nil),
	resolves: true,
	oneNode:  true,
	served:   true,
	check: func(config []byte) error {
		_, err := cri.ParseConfig(config)
		return err
	},
	new: newCRI,
}

func newCRI(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := cri.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := cri.New(context.Background(), init.machine(), cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return nodeutil.AsProvider(p), p, p, nil
}
