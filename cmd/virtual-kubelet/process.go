//go:build !chosen_providers || provider_process

package main

import (
	"context"
	"io"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

func init() {
	providers["process"] = processEntry
	atStart = append(atStart, runtime.MaybeShim) // it starts this program for each container
}

var processEntry = providerEntry{
	summary: "pods as processes of this machine, which needs no container runtime",
	config: `YAML or JSON; all fields are optional (providers/process/README.md has the
rest):

  {"root": "/var/lib/virtual-kubelet", "logRoot": "/var/log/pods",
   "clusterDNS": ["10.96.0.10"], "hostPaths": ["/srv/data"],
   "cpu": "4", "memory": "16Gi", "pods": "110",
   "runtime": {"isolation": "auto", "binaries": ["/usr/bin/*"],
               "users": ["1000-1999"], "sharedNetwork": true}}
`,
	sample:   (*process.Provider)(nil),
	resolves: true,
	oneNode:  true,
	served:   true,
	check: func(config []byte) error {
		_, err := process.ParseConfig(config)
		return err
	},
	new: newProcess,
}

// shimProgram returns the small program that containers run under, which takes less memory than
// this one. A binary that was not built by the Makefile may lack it: nil is this program.
var shimProgram = func() ([]byte, error) { return nil, nil }

func newProcess(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	cfg, err := process.ParseConfig(init.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	if cfg.Runtime.ShimProgram, err = shimProgram(); err != nil {
		return nil, nil, nil, err
	}
	p, err := process.New(context.Background(), init.machine(), cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	return nodeutil.AsProvider(p), p, p, nil
}
