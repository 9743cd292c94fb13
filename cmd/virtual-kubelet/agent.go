//go:build !chosen_providers || provider_cri || provider_process

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
)

func init() { commands = append(commands, newAgentCommand) }

const agentHelp = `Run the pod of this machine for a node of the provider machine
(providers/machine/README.md): the agent proves to the node which machine it is, by
the token in the machine's user data and a key that it makes here, and serves that
node alone.`

// agentProviders are those that run pods on the machine of the process.
var agentProviders = []string{"process", "cri"}

// agentOptions are the values of the flags.
type agentOptions struct {
	providerFlags
	bootstrap, stateDir, listen, clusterDomain string
}

func newAgentCommand() *cobra.Command {
	var o agentOptions
	command := &cobra.Command{
		Use:   "agent",
		Short: "Run the pod of this machine for a node of the provider machine",
		Long:  agentHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(o.withLog(cmd.Context(), cmd.ErrOrStderr())) },
	}
	flags := command.Flags()
	flags.StringVar(&o.bootstrap, "bootstrap", "", "file with the machine's user data, which nobody else may read")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/virtual-kubelet-agent", "directory of the agent's key, which stays in this machine")
	flags.StringVar(&o.listen, "listen", "", "address and port to listen at (default: the port of the user data, at all addresses)")
	o.addTo(flags, "process", "what runs the pod: process or cri")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local", "domain of the cluster's services")
	return command
}

// complete checks the values.
func (o *agentOptions) complete() error {
	if _, ok := providers[o.provider]; !ok || !slices.Contains(agentProviders, o.provider) {
		return fmt.Errorf("--provider is %q: use process or cri, if this binary has it", o.provider)
	}
	if o.bootstrap == "" {
		return errors.New("--bootstrap is missing: give the file with the machine's user data")
	}
	return o.check()
}

// run serves until ctx ends.
func (o *agentOptions) run(ctx context.Context) error {
	if err := o.complete(); err != nil {
		return usageError{err}
	}
	config, err := readProviderConfig(o.providerConfig)
	if err != nil {
		return err
	}
	bootstrap, err := o.readBootstrap()
	if err != nil {
		return err
	}
	key, err := o.key()
	if err != nil {
		return fmt.Errorf("--state-dir cannot be used: %w", err)
	}
	return agent.Run(ctx, agent.Options{
		Bootstrap: bootstrap, Key: key, Listen: o.listen, Name: o.provider, Version: buildinfo.Get().Version,
		NewProvider: func(ctx context.Context, init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			return providers[o.provider].new(providerInit{
				ctx: ctx, ProviderConfig: init, NodeName: bootstrap.Node, OS: "linux", ClusterDomain: o.clusterDomain, Config: config, sent: true,
			})
		},
	})
}

// readBootstrap reads the user data, which have a token.
func (o *agentOptions) readBootstrap() (none agent.Bootstrap, err error) {
	info, err := os.Stat(o.bootstrap)
	if err != nil {
		return none, fmt.Errorf("--bootstrap cannot be read: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return none, usagef("--bootstrap %s has a token, and others can read it: chmod 600 it", o.bootstrap)
	}
	data, err := os.ReadFile(o.bootstrap)
	if err != nil {
		return none, fmt.Errorf("--bootstrap cannot be read: %w", err)
	}
	return agent.ParseBootstrap(data)
}

// key returns the agent's key, which is made at the first start.
func (o *agentOptions) key() ([]byte, error) {
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(o.stateDir, "agent.key")
	key, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = agent.NewKey(); err != nil {
		return nil, err
	}
	// The node knows the machine by this key: half of it must not stay.
	if err := os.WriteFile(path+".new", key, 0o600); err != nil {
		return nil, err
	}
	return key, os.Rename(path+".new", path)
}
