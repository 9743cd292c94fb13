// Command cluster starts what the suite needs, with nothing left behind: a
// registry with the suite's images and containerd, for nodes that run containers, a
// control plane, and a node, which is Virtual Kubelet with the provider under
// test, or the real kubelet for comparison. Then it runs a command with
// KUBECONFIG, NODE_NAME and NODE_SETUP in its environment, and stops everything:
//
//	cluster -bin DIR -node cri|process|kubelet -logs DIR -- COMMAND...
//
// With a shell for a command, that is a cluster to look around in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The kernel kills the node when the thread that started it ends; main's ends
// with the process.
func init() { runtime.LockOSThread() }

// options are the flags.
type options struct {
	bin, node, name, logs, providerConfig string
	port                                  int
	nodeArgs                              list
	command                               []string
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin", "directory with controlplane, containerd-up, virtual-kubelet and conformance/")
	flags.StringVar(&o.node, "node", "cri", "the node to start: Virtual Kubelet with the provider cri or process, or kubelet, the reference")
	flags.StringVar(&o.name, "name", "node-under-test", "name of the node")
	flags.StringVar(&o.logs, "logs", "", "directory for the logs of the node and containerd (required)")
	flags.StringVar(&o.providerConfig, "provider-config", "", "template of virtual-kubelet's --provider-config (default: the one of this program)")
	flags.IntVar(&o.port, "port", 0, "port of the node's API; specs that call it themselves want 10250 (default: a free one)")
	flags.Var(&o.nodeArgs, "node-arg", "a further flag of the node (may be repeated)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.command = flags.Args()
	if o.logs == "" || len(o.command) == 0 {
		return errors.New("usage: cluster -bin DIR -node NAME -logs DIR -- COMMAND...; see cluster -help")
	}
	for _, path := range []*string{&o.bin, &o.logs} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("resolve %s: %w", *path, err)
		}
		*path = absolute
	}
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return fmt.Errorf("make the directory for logs: %w", err)
	}
	kind, err := chooseNode(o.node)
	if err != nil {
		return err
	}
	return o.run(ctx, kind)
}

// run starts the parts, each of which the next one needs.
func (o *options) run(ctx context.Context, kind nodeKind) (err error) {
	ground, err := kind.prepare(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ground.stop()) }()

	progress("starting the control plane")
	plane, err := startControlPlane(ctx, o, ground.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.stop()) }()

	progress("starting the node: %s", o.node)
	bootstrap, err := plane.bootstrapKubeconfig(ctx)
	if err != nil {
		return err
	}
	n := nodeEnvironment{
		options:   o,
		Name:      o.name,
		Bin:       o.bin,
		Endpoint:  ground.endpoint,
		Dir:       filepath.Join(ground.dir, "node"),
		Address:   ground.address,
		Port:      o.port,
		ClientCA:  plane.clientCA(),
		Bootstrap: bootstrap,
	}
	if err := os.MkdirAll(n.Dir, 0o755); err != nil {
		return fmt.Errorf("make the node's directory: %w", err)
	}
	node, err := kind.start(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.stop()) }()
	if err := plane.waitForNode(ctx, o.name, node); err != nil {
		return fmt.Errorf("%w: see the logs in %s", err, o.logs)
	}
	setup, err := plane.describeNode(ctx, o.name)
	if err != nil {
		return err
	}
	progress("the node is ready: %s; running %s", setup, o.command[0])

	cmd := exec.CommandContext(ctx, o.command[0], o.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The suite calls kubectl.
	kubectl, err := plane.installKubectl()
	if err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), "PATH="+kubectl+":"+os.Getenv("PATH"), "KUBECONFIG="+plane.kubeconfig(), "NODE_NAME="+o.name, "NODE_SETUP="+setup, "CONTAINERD_ENDPOINT="+ground.endpoint)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%s failed: %w", o.command[0], err)
	}
	progress("stopping")
	return err
}

// progress prints a line about the progress.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}
