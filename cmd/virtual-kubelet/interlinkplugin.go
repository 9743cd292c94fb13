package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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

Who may connect may run pods: listen on a socket or on this machine's own address,
or demand certificates by --client-ca-file.`

// interlinkPlugin are the values of the flags.
type interlinkPlugin struct {
	providerFlags
	listen, stateDir, name          string
	certFile, keyFile, clientCAFile string
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
			return o.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	flags := command.Flags()
	o.addTo(flags, "", "provider that runs the pods (see virtual-kubelet providers)")
	flags.StringVar(&o.listen, "listen", "", "where to listen: unix:///PATH, or an address and a port, such as 127.0.0.1:4000")
	flags.StringVar(&o.stateDir, "state-dir", "", "directory for the pods and the contents of their volumes, secrets among them; not to be shared")
	flags.StringVar(&o.name, "name", "interlink", "name by which the provider knows its pods; it must not change, and differs between plugins that share a service")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "PEM file with the certificate, reloaded for each connection")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "PEM file with the key of --tls-cert-file")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "PEM file with the CA of the certificates that clients have to have")
	return command
}

// complete checks the values.
func (o *interlinkPlugin) complete() error {
	if _, ok := providers[o.provider]; !ok {
		return fmt.Errorf("there is no provider %q: give --provider, with one of %s", o.provider, strings.Join(providerNames(), ", "))
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.stateDir == "" {
		return errors.New("--state-dir is missing: give a directory that lasts, for the pods")
	}
	if (o.certFile == "") != (o.keyFile == "") || o.clientCAFile != "" && o.certFile == "" {
		return errors.New("--tls-cert-file and --tls-private-key-file belong together, and with --client-ca-file: give all that are needed, or none")
	}
	if strings.HasPrefix(o.listen, "unix:///") {
		return nil
	}
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("--listen is %q: write unix:///PATH, or an address and a port", o.listen)
	}
	if address, err := netip.ParseAddr(host); o.clientCAFile == "" && (err != nil || !address.IsLoopback()) {
		return fmt.Errorf("--listen is %q, where all who connect could run pods: give --client-ca-file, or listen on unix:///PATH or 127.0.0.1", o.listen)
	}
	return nil
}

// run serves until ctx ends.
func (o *interlinkPlugin) run(ctx context.Context, stderr io.Writer) error {
	ctx, config, err := o.begin(ctx, stderr)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return fmt.Errorf("--state-dir cannot be used: %w", err)
	}
	listener, err := o.listener()
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

// listener listens. The socket of a process that has ended is replaced.
func (o *interlinkPlugin) listener() (net.Listener, error) {
	network, address := "tcp", o.listen
	if path, ok := strings.CutPrefix(o.listen, "unix://"); ok {
		network, address = "unix", path
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
				_ = conn.Close()
				return nil, fmt.Errorf("cannot listen on %s: another process does", path)
			}
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		}
	}
	listener, err := net.Listen(network, address)
	if err != nil || o.certFile == "" {
		return listener, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		return &pair, err
	}}
	if o.clientCAFile != "" {
		text, err := os.ReadFile(o.clientCAFile)
		if err != nil {
			_ = listener.Close()
			return nil, fmt.Errorf("--client-ca-file cannot be read: %w", err)
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			_ = listener.Close()
			return nil, fmt.Errorf("--client-ca-file: %s has no certificate in PEM", o.clientCAFile)
		}
	}
	return tls.NewListener(listener, config), nil
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
