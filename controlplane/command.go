package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/version"
)

const downTimeout = 60 * time.Second

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "controlplane",
		Short: "A real Kubernetes control plane in one binary",
		Long: `controlplane runs etcd, kube-apiserver, kube-controller-manager and
kube-scheduler, each in a process of its own.

"controlplane kubectl ..." is kubectl. "controlplane kube-apiserver ...",
"kube-controller-manager ...", "kube-scheduler ..." and "etcd ..." are the
components themselves.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	if f := pflag.Lookup("version"); f != nil {
		f.Hidden = true
	}
	root.AddCommand(newUpCommand(), newDownCommand(), newVersionCommand(),
		newControlCommand(actionStart, "Start a component that was stopped and wait until it is ready"),
		newControlCommand(actionStop, "Kill a component (SIGKILL), as an outage would"),
		newControlCommand(actionRestart, "Kill a component (SIGKILL), start it again and wait until it is ready"))
	return root
}

func newUpCommand() *cobra.Command {
	o := upOptions{stdout: os.Stdout, stderr: os.Stderr}
	var withStdin bool
	var extra []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a control plane and stop it with Ctrl-C",
		Long: `up starts a control plane. When everything is ready it prints one line on
standard output, with the path of the kubeconfig. It stops everything on
SIGINT, SIGTERM or SIGHUP, and when a component ends by itself.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.extra, err = parseExtra(extra); err != nil {
				return err
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer cancel()
			if withStdin {
				ctx, cancel = untilEOF(ctx, os.Stdin)
				defer cancel()
			}
			return up(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "", "data directory; it is kept, and a later start continues with the same data, certificates and port (default: a temporary one that is removed at the end)")
	f.BoolVar(&o.ephemeral, "ephemeral", false, "remove --dir at the end; it must be empty at the start")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "write the administrator's kubeconfig here too (it is in DIR/kubeconfig/admin.kubeconfig anyway)")
	f.IPVar(&o.address, "address", loopback, "address of this machine on which the API server listens")
	f.IntVar(&o.port, "port", 0, "port of the API server (default: the one it had before, else a free one)")
	f.StringVar(&o.serviceCIDR, "service-cidr", "10.96.0.0/16", "range of the cluster IPs of services")
	f.StringArrayVar(&extra, "arg", nil, "further flag of a component, as in kube-scheduler=--v=4; it wins over ours (repeatable)")
	f.BoolVar(&withStdin, "stop-with-stdin", false, "stop when standard input ends: a program that holds the other end of the pipe takes the control plane with it when it dies")
	return cmd
}

// parseExtra reads COMPONENT=FLAG.
func parseExtra(args []string) (map[string][]string, error) {
	extra := map[string][]string{}
	for _, arg := range args {
		name, flag, ok := strings.Cut(arg, "=")
		if _, known := multicall[name]; !ok || !known || name == kubectlName || !strings.HasPrefix(flag, "-") {
			return nil, fmt.Errorf("--arg %q: want COMPONENT=FLAG, for example %s=--v=4", arg, schedulerName)
		}
		extra[name] = append(extra[name], flag)
	}
	return extra, nil
}

// untilEOF returns a context that is cancelled when the reader ends. The
// goroutine ends with the reader or with the process.
func untilEOF(ctx context.Context, r io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, r)
	}()
	return ctx, cancel
}

func newDownCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "down --dir DIR",
		Short: "Stop the control plane of a data directory and wait until it is gone",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := layoutOf(dir)
			if err != nil {
				return err
			}
			return down(cmd.Context(), l, downTimeout)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "data directory")
	return cmd
}

func newControlCommand(action, short string) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:       action + " COMPONENT --dir DIR",
		Short:     short,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{etcdName, apiServerName, controllerManagerName, schedulerName},
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := layoutOf(dir)
			if err != nil {
				return err
			}
			return callControl(cmd.Context(), l, action, args[0])
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "data directory")
	return cmd
}

// newVersionCommand is no --version flag: Kubernetes' libraries have a global
// one, which our commands hide because it means nothing to them.
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of Kubernetes",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version.Get().GitVersion) },
	}
}

func layoutOf(dir string) (layout, error) {
	if dir == "" {
		return layout{}, errors.New("--dir is needed: it says which control plane")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, fmt.Errorf("resolve --dir: %w", err)
	}
	return layout{dir}, nil
}
