// Command run runs specs of the Kubernetes e2e suite on a cluster whose only
// schedulable node is the one under test:
//
//	run -kubeconfig FILE -node NAME -e2e FILE -specs FILE -expected FILE -results DIR
//
// It runs several processes of the suite at a time, bounds the time of each
// spec, and writes results.md, junit.xml and the suite's output to DIR. It
// exits with status 0 when the specs that failed are the expected ones.
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
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/junit"
	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/specs"
)

// options are the flags.
type options struct {
	kubeconfig, node, e2e, specs, expected, results, focus string

	// setup says what the node is, kubernetes the suite's version.
	setup, kubernetes string

	procs         int
	timeout       time.Duration
	skipSlow      bool
	sharedNetwork bool
	again         bool
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of an administrator (default: $KUBECONFIG)")
	flags.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "name of the node, for the report (default: $NODE_NAME)")
	flags.StringVar(&o.e2e, "e2e", "", "the suite, as build.sh builds it (required)")
	flags.StringVar(&o.specs, "specs", "", "file with the names of the specs, one a line (required)")
	flags.StringVar(&o.expected, "expected", "", "file with the names of specs that are known not to pass (default: none)")
	flags.StringVar(&o.results, "results", "", "directory for the results (required)")
	flags.StringVar(&o.focus, "focus", "", "run only specs whose names match this regular expression")
	flags.StringVar(&o.setup, "setup", os.Getenv("NODE_SETUP"), "what the node is, for the report (default: $NODE_SETUP)")
	flags.BoolVar(&o.sharedNetwork, "shared-network", false, "run specs whose pods listen at the same port one after the other, for nodes whose pods have one network")
	flags.IntVar(&o.procs, "procs", 6, "how many specs run at a time; they mostly wait")
	flags.DurationVar(&o.timeout, "spec-timeout", 8*time.Minute, "interrupt a spec after this time")
	flags.BoolVar(&o.skipSlow, "skip-slow", false, "leave out the specs that watch for four minutes that nothing happens")
	flags.BoolVar(&o.again, "again", false, "run only what failed in the run before, whose results are in -results, and keep the results of the others")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for name, value := range map[string]string{"-kubeconfig": o.kubeconfig, "-e2e": o.e2e, "-specs": o.specs, "-results": o.results} {
		if value == "" {
			return fmt.Errorf("no %s: give it; see run -help", name)
		}
	}
	if flags.NArg() > 0 || o.procs < 1 {
		return errors.New("usage: see run -help")
	}
	names, err := o.selectSpecs()
	if err != nil {
		return err
	}
	var before *junit.Suite
	if o.again {
		if before, err = readBefore(o.results); err != nil {
			return err
		}
		if names = failedBefore(before, names); len(names) == 0 {
			fmt.Println("no spec has failed before")
			return nil
		}
	}
	known := map[string]specs.Known{}
	if o.expected != "" {
		if known, err = specs.ReadKnown(o.expected); err != nil {
			return err
		}
	}
	if o.kubernetes, err = o.version(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(o.results, "output"), 0o755); err != nil {
		return fmt.Errorf("make the directory for results: %w", err)
	}

	begin := time.Now()
	s := newScheduler(names, o, os.Stdout)
	if o.again {
		s.batches = againBatch
	}
	s.leaveOut(known)
	s.run(ctx)
	report := report{node: o.node, setup: o.setup, kubernetes: o.kubernetes, results: s.results(), begin: begin, elapsed: time.Since(begin)}
	if o.again {
		report.addBefore(before, known)
	}
	report.compare(known)
	if err := report.write(o.results); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; the results so far are in " + o.results)
	}
	return report.verdict(os.Stdout, o.results)
}

// version asks the suite which Kubernetes it is of.
func (o *options) version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, o.e2e, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask the suite for its version: %w: build it with \"make conformance-parts\"", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// selectSpecs returns the names of the specs to run.
func (o *options) selectSpecs() ([]string, error) {
	all, err := specs.Names(o.specs)
	if err != nil {
		return nil, err
	}
	focus, err := regexp.Compile(o.focus)
	if err != nil {
		return nil, fmt.Errorf("understand -focus: %w", err)
	}
	var names []string
	for _, name := range all {
		if focus.MatchString(name) && (!o.skipSlow || !isSlow(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no spec of %s is left to run: check -focus and -skip-slow", o.specs)
	}
	return names, nil
}
