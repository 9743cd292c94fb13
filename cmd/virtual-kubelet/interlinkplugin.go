package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/plugin"
)

const interlinkPluginHelp = `Run pods by a provider, without a cluster, for an interLink API server: this is
the plugin that its settings SidecarURL and SidecarPort name
(providers/interlink/README.md).

Who may connect may run pods: listen on a socket, or demand certificates by
--client-ca-file. The address 127.0.0.1 alone is for every program of this machine, and
so refused for providers whose pods may run on it. Pods that run as the user of the plugin
can open its socket, too.`

// interlinkPlugin are the values of the flags.
type interlinkPlugin struct {
	providerFlags
	listenFlags
	stateDir, name string
}

func newInterlinkPluginCommand() *cobra.Command {
	var o interlinkPlugin
	command := &cobra.Command{
		Use:   "interlink-plugin",
		Short: "Run pods for an interLink API server",
		Long:  interlinkPluginHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return usageError{err}
			}
			return o.run(o.withLog(cmd.Context(), cmd.ErrOrStderr()))
		},
	}
	flags := command.Flags()
	o.providerFlags.addTo(flags, "", "provider that runs the pods (see virtual-kubelet providers)")
	o.listenFlags.addTo(flags)
	flags.StringVar(&o.stateDir, "state-dir", "", "directory for the pods and the contents of their volumes, secrets among them; not to be shared")
	flags.StringVar(&o.name, "name", "interlink", "name by which the provider knows its pods; it must not change, and differs between plugins that share a service")
	return command
}

// complete checks the values.
func (o *interlinkPlugin) complete() error {
	if _, ok := providers[o.provider]; !ok {
		return fmt.Errorf("there is no provider %q: give --provider, with one of %s", o.provider, strings.Join(providerNames(), ", "))
	}
	if err := o.providerFlags.check(); err != nil {
		return err
	}
	if o.stateDir == "" {
		return errors.New("--state-dir is missing: give a directory that lasts, for the pods")
	}
	// Those that resolve do a kubelet's work on this machine, whose network their pods may have.
	entry := providers[o.provider]
	here := entry.resolves
	if entry.here != nil {
		config, err := readProviderConfig(o.providerConfig)
		if err != nil {
			return err
		}
		here = entry.here(config)
	}
	return o.listenFlags.check(!here)
}

// run serves until ctx ends.
func (o *interlinkPlugin) run(ctx context.Context) error {
	config, err := readProviderConfig(o.providerConfig)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return fmt.Errorf("--state-dir cannot be used: %w", err)
	}
	listener, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	var closer io.Closer
	server, err := plugin.New(ctx, plugin.Options{
		NewProvider: func(init nodeutil.ProviderConfig) (p nodeutil.Provider, n node.NodeProvider, err error) {
			p, n, closer, err = providers[o.provider].new(providerInit{
				ctx: ctx, ProviderConfig: init, NodeName: o.name, OS: "linux", InternalIP: "127.0.0.1", ClusterDomain: "cluster.local", Config: config,
			})
			return p, n, err
		},
		NodeName: o.name, ClusterUID: types.UID("interlink-" + o.name), HostIPs: []string{"127.0.0.1"}, Store: podFiles(o.stateDir),
	})
	if closer != nil {
		defer closer.Close()
	}
	if err != nil {
		return err
	}
	defer server.Close()
	web := &http.Server{Handler: server, ReadHeaderTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	log.G(ctx).WithFields(log.Fields{"provider": o.provider, "address": listener.Addr().String()}).Info("Serving an interLink API server")
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// podFiles is a plugin.Store: a directory with a file for each pod.
type podFiles string

// Load implements plugin.Store.
func (dir podFiles) Load() (map[string][]byte, error) {
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	for _, entry := range entries {
		if uid, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			if texts[uid], err = os.ReadFile(dir.path(uid)); err != nil {
				return nil, err
			}
		}
	}
	return texts, nil
}

// Save implements plugin.Store.
func (dir podFiles) Save(uid string, text []byte) error {
	file, err := os.CreateTemp(string(dir), uid+".*.new") // of mode 600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), dir.path(uid))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// Delete implements plugin.Store.
func (dir podFiles) Delete(uid string) error {
	if err := os.Remove(dir.path(uid)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (dir podFiles) path(uid string) string { return filepath.Join(string(dir), uid+".json") }
