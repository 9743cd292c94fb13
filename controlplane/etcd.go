package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// Sockets of etcd, relative to its working directory, so that the length of
// the data directory's name does not matter. The ":0" is there because etcd
// wants a port in the URL that it advertises.
const (
	etcdSocket     = "etcd.sock:0"
	etcdPeerSocket = "etcd-peer.sock:0"
)

const etcdStartTimeout = 60 * time.Second

// runEtcd runs one etcd member that listens on Unix sockets in the working
// directory only: no port, no certificate, and no access for other users
// because the directory is private.
func runEtcd() int {
	var dataDir string
	cmd := &cobra.Command{
		Use:           "etcd",
		Short:         "Run a single etcd member on Unix sockets in the working directory",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return serveEtcd(dataDir) },
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "etcd", "directory of the database")
	cmd.SetArgs(os.Args[1:])
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	return 0
}

func serveEtcd(dataDir string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)

	etcd, err := embed.StartEtcd(etcdConfig(dataDir))
	if err != nil {
		return fmt.Errorf("start the etcd server in %s: %w", dataDir, err)
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return fmt.Errorf("serve etcd: %w", err)
	case <-time.After(etcdStartTimeout):
		return fmt.Errorf("etcd was not ready within %v", etcdStartTimeout)
	case <-stop:
		return nil
	}
	select {
	case err := <-etcd.Err():
		return fmt.Errorf("serve etcd: %w", err)
	case <-stop:
		return nil
	}
}

// etcdConfig is tuned for a cluster that may be lost with its machine: nothing
// is synced to disk. A crash of etcd alone loses nothing.
func etcdConfig(dataDir string) *embed.Config {
	client := url.URL{Scheme: "unix", Host: etcdSocket}
	peer := url.URL{Scheme: "unix", Host: etcdPeerSocket}

	cfg := embed.NewConfig()
	cfg.Name = "controlplane"
	cfg.Dir = dataDir
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.ListenPeerUrls = []url.URL{peer}
	cfg.AdvertisePeerUrls = []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 8 << 30
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{"stderr"}
	return cfg
}
