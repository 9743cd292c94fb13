//go:build linux

// Command containerd-up runs a containerd of its own until it is stopped,
// and leaves nothing on the machine. It serves the package test/containerd.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd/internal/supervisor"
)

// The kernel kills containerd when the thread that started it ends; main's ends
// with the process.
func init() { runtime.LockOSThread() }

func main() {
	root := &cobra.Command{
		Use:           "containerd-up",
		Short:         "Runs a containerd for tests, which leaves nothing on the machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), cleanCommand())
	if err := root.Execute(); err != nil {
		root.PrintErrln("containerd-up:", err)
		os.Exit(1)
	}
}

func upCommand() *cobra.Command {
	var opts supervisor.Options
	var withStdin bool
	cmd := &cobra.Command{
		Use:   "up --dir DIR --sandbox-image NAME",
		Short: "Run containerd; a line of JSON on standard output says that it is ready, and where",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
				return err
			}
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer cancel()
			if withStdin {
				go func() {
					_, _ = io.Copy(io.Discard, cmd.InOrStdin())
					cancel()
				}()
			}
			return supervisor.Up(ctx, opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	addDir(cmd, &opts.Dir)
	flags.StringVar(&opts.SandboxImage, "sandbox-image", "", "name of the image that holds a pod's namespaces (required)")
	_ = cmd.MarkFlagRequired("sandbox-image") // there is this flag
	flags.StringArrayVar(&opts.Images, "image", nil, "archive of images to import (may be repeated)")
	flags.StringVar(&opts.Mirror, "mirror", "", "URL of a registry that is asked for every image that is pulled")
	flags.StringVar(&opts.Runc, "runc", "", "path of the program that runs containers (default: runc)")
	flags.BoolVar(&opts.SystemdCgroup, "systemd-cgroup", false, "have control groups made by systemd")
	flags.StringVar(&opts.LogFile, "log-file", "", "file for containerd's log (default: in DIR)")
	flags.BoolVar(&withStdin, "stop-with-stdin", false, "stop when the standard input ends")
	return cmd
}

func cleanCommand() *cobra.Command {
	var dir string
	var afterStdin bool
	cmd := &cobra.Command{
		Use:   "clean --dir DIR",
		Short: "Remove what the containerd in DIR has left, with DIR",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			var network []byte
			if afterStdin {
				network, _ = io.ReadAll(cmd.InOrStdin()) // however it ends
			}
			return supervisor.Clean(dir, string(network))
		},
	}
	addDir(cmd, &dir)
	cmd.Flags().BoolVar(&afterStdin, "after-stdin", false, "wait until the standard input, the name of the network, ends")
	return cmd
}

func addDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "directory for all files, removed in the end (required)")
	_ = cmd.MarkFlagRequired("dir") // there is this flag
}
