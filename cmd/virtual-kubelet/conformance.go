package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
)

const conformanceHelp = `Check what a node of any provider can do, through the API server: create pods on
it, read their logs, run commands in them, and so on, and delete them again.
Progress goes to standard error, a report to standard output: in Markdown, or as
--output says. --badge writes a picture for a README.

Each check belongs to a capability. All capabilities are checked unless
--capabilities names some; the core always is. A capability that the provider
reports as unsupported (status 501 of the kubelet API, an event
ProviderNotSupported) is not a failure. Everything else that goes wrong is, so
leave out capabilities that the provider does not claim.

Exit status:
  0  all checks of the core and of the capabilities in --require passed
  1  one of these failed or is not supported, or the checks could not run
  2  the command line is wrong
Failed checks of other capabilities are reported, but do not change the exit
status; with --require all, every check counts.

Capabilities: %s.

Checks of the disk need --directories, and have to run on the node's machine.
Checks of a restart of the agent need --stop-command and --start-command; they run
last, one at a time. A kill is the stricter test:
  --stop-command 'systemctl kill -s KILL virtual-kubelet' --start-command 'systemctl start virtual-kubelet'

The account needs the rights of deploy/conformance-rbac.yaml: in the namespace,
which has to exist, on pods, their subresources, ConfigMaps, Secrets and events; in
the cluster, to read the node, its lease, and its kubelet's pods and statistics.`

// conformanceOptions are the values of the flags.
type conformanceOptions struct {
	kubeconfig   string
	node         nodecheck.Options
	shell        string
	capabilities []string
	skip         []string
	require      []string
	parallel     int
	markdown     string
	junit        string
	output       string
	badge        string
	stopCommand  string
	startCommand string

	selection nodecheck.Selection
	required  []nodecheck.Capability
}

func newConformanceCommand(getenv func(string) string) *cobra.Command {
	var o conformanceOptions
	names := make([]string, 0, len(nodecheck.Capabilities()))
	for _, c := range nodecheck.Capabilities() {
		names = append(names, string(c))
	}
	command := &cobra.Command{
		Use:   "conformance",
		Short: "Check what a node can do",
		Long:  fmt.Sprintf(conformanceHelp, strings.Join(names, ", ")),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return usageError{err}
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, the pod's service account, or ~/.kube/config)")
	flags.StringVar(&o.node.Name, "nodename", cmp.Or(getenv("DEFAULT_NODE_NAME"), defaultNodeName), "name of the node ($DEFAULT_NODE_NAME)")
	flags.StringVar(&o.node.Namespace, "namespace", "default", "namespace to create pods in; it has to exist")
	flags.StringVar(&o.node.Image, "image", nodecheck.DefaultImage, "image of all containers; it needs the shell, cat, cut, ls, sleep, tr, and nc or perl")
	flags.StringVar(&o.shell, "shell", strings.Join(nodecheck.DefaultShell(), " "), "command that runs a script; if empty, the image has to run by itself until it is stopped, and checks that need commands are left out")
	flags.StringSliceVar(&o.capabilities, "capabilities", []string{"all"}, "capabilities to check, besides the core")
	flags.StringSliceVar(&o.skip, "skip", nil, "capabilities and checks to leave out")
	flags.StringSliceVar(&o.require, "require", nil, "capabilities whose checks have to pass, or all")
	flags.StringSliceVar(&o.node.Directories, "directories", nil, "directories of this machine where the provider keeps files of pods, such as its root and the logs")
	flags.StringVar(&o.stopCommand, "stop-command", "", "shell command that stops or kills the node's agent")
	flags.StringVar(&o.startCommand, "start-command", "", "shell command that starts the agent again, and returns")
	flags.DurationVar(&o.node.Timeout, "timeout", 3*time.Minute, "maximum duration of a check")
	flags.IntVar(&o.parallel, "parallel", 8, "number of checks to run at the same time")
	flags.StringVar(&o.markdown, "markdown", "", "file to write the Markdown report to, besides standard output")
	flags.StringVarP(&o.output, "output", "o", "markdown", "format of the report on standard output: markdown, text or json")
	flags.StringVar(&o.badge, "badge", "", "file to write a picture (SVG) of the result to")
	flags.StringVar(&o.junit, "junit", "", "file to write a JUnit report to")
	return command
}

// complete checks the values of the flags.
func (o *conformanceOptions) complete() error {
	var err error
	if o.selection.Capabilities, err = nodecheck.ParseCapabilities(o.capabilities); err != nil {
		return fmt.Errorf("--capabilities: %w", err)
	}
	if o.required, err = nodecheck.ParseCapabilities(o.require); err != nil {
		return fmt.Errorf("--require: %w", err)
	}
	if !slices.Contains(o.require, "all") { // all are those that are checked
		for _, c := range o.required {
			if c != nodecheck.Core && !slices.Contains(o.selection.Capabilities, c) {
				return fmt.Errorf("--require names %s, which is not among --capabilities", c)
			}
		}
	}
	for _, name := range o.skip {
		if _, err := nodecheck.ParseCapabilities([]string{name}); err != nil && !slices.ContainsFunc(nodecheck.Checks(), func(c nodecheck.Check) bool { return c.Name == name }) {
			return fmt.Errorf("--skip: there is no capability or check %q", name)
		}
	}
	o.selection.Skip = o.skip
	switch {
	case o.node.Name == "":
		return errors.New("--nodename is empty: name the node to be checked")
	case o.node.Timeout <= 0:
		return fmt.Errorf("--timeout is %v: give a positive duration", o.node.Timeout)
	case !slices.Contains([]string{"markdown", "text", "json"}, o.output):
		return fmt.Errorf("--output is %q: give markdown, text or json", o.output)
	case o.parallel < 1:
		return fmt.Errorf("--parallel is %d: at least one check has to run at a time", o.parallel)
	}
	if (o.stopCommand == "") != (o.startCommand == "") {
		return errors.New("--stop-command and --start-command belong together: give both, or none")
	}
	if o.stopCommand != "" {
		o.node.Restart = restartBy(o.stopCommand, o.startCommand)
	}
	o.node.Shell = strings.Fields(o.shell)
	o.node.UserAgent = "virtual-kubelet-conformance"
	return nil
}

func (o *conformanceOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	klog.SetLogger(logr.Discard()) // client-go is loud about streams that end
	config, source, err := kubeConfig(&options{kubeconfig: o.kubeconfig, nodeName: o.node.Name, kubeAPIQPS: -1})
	if err != nil {
		return err
	}
	n, err := nodecheck.New(config, o.node)
	if err != nil {
		return err
	}
	node, err := n.Client.CoreV1().Nodes().Get(ctx, o.node.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot check node %s of the cluster %s (%s): %w", o.node.Name, config.Host, source, err)
	}
	report := &nodecheck.Report{Node: o.node.Name, Version: node.Status.NodeInfo.KubeletVersion, Began: time.Now()}
	fmt.Fprintf(stderr, "Checking node %s of the cluster %s (%s)\n", o.node.Name, config.Host, source)
	results, err := nodecheck.RunAll(ctx, n, o.selection, o.parallel, printProgress(stderr))
	report.Results, report.Took = results, time.Since(report.Began)
	fmt.Fprintln(stderr)
	return errors.Join(err, o.write(report, stdout), o.verdict(results))
}

// restartBy restarts the agent of the node by commands of this machine's shell. The
// start command also runs after an error.
func restartBy(stop, start string) func(context.Context, func(context.Context) error) error {
	run := func(ctx context.Context, flag, command string) error {
		if out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %q: %w: %s", flag, command, err, bytes.TrimSpace(out))
		}
		return nil
	}
	return func(ctx context.Context, down func(context.Context) error) error {
		err := run(ctx, "--stop-command", stop)
		if err == nil {
			err = down(ctx)
		}
		return errors.Join(err, run(context.WithoutCancel(ctx), "--start-command", start))
	}
}

// printProgress prints a line for each check that has run.
func printProgress(w io.Writer) func(nodecheck.Result) {
	return func(r nodecheck.Result) {
		if r.Outcome == nodecheck.Skipped {
			return
		}
		why, _, _ := strings.Cut(r.Why, "\n")
		fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf("%-13s %s (%.1fs) %s", r.Outcome, r.Check.Name, r.Took.Seconds(), why)))
	}
}

// write writes the reports.
func (o *conformanceOptions) write(report *nodecheck.Report, stdout io.Writer) error {
	format := map[string]func(io.Writer) error{"markdown": report.Markdown, "text": report.Text, "json": report.JSON}[o.output]
	return errors.Join(
		format(stdout),
		writeReport(o.badge, report.Badge),
		writeReport(o.markdown, report.Markdown),
		writeReport(o.junit, report.JUnit),
	)
}

func writeReport(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return fmt.Errorf("cannot write the report %s: %w", path, err)
	}
	return nil
}

// verdict returns an error that names the checks that had to pass and did not.
func (o *conformanceOptions) verdict(results []nodecheck.Result) error {
	var names []string
	for _, r := range results {
		capability := r.Check.Capability()
		bad := r.Outcome == nodecheck.Failed || r.Outcome == nodecheck.NotSupported
		required := slices.Contains(o.required, capability)
		if bad && (capability == nodecheck.Core || required) || r.Blocked && required {
			names = append(names, r.Check.Name)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("%d required checks did not pass: %s", len(names), strings.Join(names, ", "))
	}
	return nil
}
