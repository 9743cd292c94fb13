// Command virtual-kubelet registers a virtual node and runs its pods with a
// provider. It is the only part of this module that reads flags, environment
// variables and configuration files.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/idlememory"
)

// The exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error of the command line, or of an environment variable that is the
// default of a flag.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// atStart are the parts of providers that this program is started for by itself. Each
// returns at once where it is not that part, and else does not return.
var atStart []func()

// commands are those of parts that a binary can leave out.
var commands []func() *cobra.Command

func main() {
	for _, serve := range atStart {
		serve()
	}
	legacyregistry.RawMustRegister(buildMetric())
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly end, the second one ends at once.
	defer context.AfterFunc(ctx, stop)()
	go idlememory.Return(ctx, idlememory.Pause)

	command := newRootCommand(os.Getenv)
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "virtual-kubelet:", err)
	if usage, ok := errors.AsType[usageError](err); ok {
		_ = usage
		return exitUsage
	}
	return exitFailed
}
