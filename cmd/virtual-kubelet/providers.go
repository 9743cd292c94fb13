package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/settings"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// providerInit is what this binary has for a new provider.
type providerInit struct {
	ctx context.Context // ends with the process, while the provider is made
	nodeutil.ProviderConfig

	NodeName      string
	OS            string
	InternalIP    string
	ClusterDomain string
	// sent means that pods come from another process, with what is in their volumes: nothing is
	// known of a cluster.
	sent bool
	// Config is the content of the provider's configuration file; nil without one.
	Config []byte
}

// providerEntry is a provider that this binary can run.
type providerEntry struct {
	summary string
	config  string // what its configuration file holds
	// sample is a nil pointer of the provider's type, for its capabilities.
	sample any
	// resolves means that the provider itself resolves the environment of pods and
	// mounts volumes.
	resolves bool
	// here reports whether pods may run on this machine, by the configuration; nil is where the
	// provider resolves.
	here func(config []byte) bool
	// mountsVolumes means that the provider, though it does not resolve the environment,
	// requests tokens and reads claims for volumes.
	mountsVolumes bool
	// served means that the provider needs no cluster, if pods come with all that they need: see
	// serveprovider.go.
	served bool
	// oneNode means that a process can have one node of the provider only.
	oneNode bool
	// check returns what is wrong with a configuration; nil is none.
	check func(config []byte) error
	// rights are what the provider needs beside those of every node, in the namespaces
	// of its pods.
	rights []rbacv1.PolicyRule
	// environment are variables that users of the provider have set.
	environment providerEnvironment
	// readsClusterUID means that the provider reads the UID of the namespace
	// kube-system, and marks what it makes with it, or names it to the provider's server.
	readsClusterUID bool
	new             func(providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error)
}

// providerEnvironment are the names of variables that other programs read for a provider.
// They are defaults where nothing else is set.
type providerEnvironment struct{ nodeName, config, address string }

// takeEnvironment sets what was not given from the variables of the provider.
func (o *options) takeEnvironment(getenv func(string) string) {
	o.loadConfig() // which may name the provider
	variables := providers[o.provider].environment
	take := func(isSet bool, setting, name string, value *string) {
		if text := getenv(name); name != "" && text != "" && !isSet {
			*value = text
			o.settings.SetOrigin(setting, settings.Origin{Name: name})
		}
	}
	take(o.flags.Changed("nodename") || getenv("DEFAULT_NODE_NAME") != "", "nodename", variables.nodeName, &o.nodeName)
	take(o.flags.Changed("provider-config"), "provider-config", variables.config, &o.providerConfig)
	take(getenv("VKUBELET_POD_IP") != "", "node.address", variables.address, &o.nodeIP)
}

// providers are those that this binary can run, by name. Each has a file of its own, which
// adds it and which the build tags chosen_providers and provider_NAME leave out or take in.
var providers = map[string]providerEntry{}

func providerNames() []string { return slices.Sorted(maps.Keys(providers)) }

// readProviderConfig reads the configuration file, if there is one.
func readProviderConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("--provider-config cannot be read: %w", err)
	}
	return content, nil
}

func newProvidersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "providers [NAME]",
		Short: "List the providers of this binary, or describe one",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("providers takes one name at most, not %d", len(args))
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return providerNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if len(args) == 0 {
				for _, name := range providerNames() {
					fmt.Fprintf(out, "%-12s %s\n", name, providers[name].summary)
				}
				return nil
			}
			entry, ok := providers[args[0]]
			if !ok {
				return usagef("there is no provider %q: use one of %s", args[0], strings.Join(providerNames(), ", "))
			}
			fmt.Fprintf(out, "%s: %s\n\nCapabilities: %s\n\nConfiguration (--provider-config):\n%s", args[0], entry.summary,
				strings.Join(nodeutil.Capabilities(entry.sample), ", "), entry.config)
			return nil
		},
	}
}
