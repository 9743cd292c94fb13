// Command soak has one agent run pods for hours that come and go, while the API server fails
// now and then, and looks each minute at what the agent has in memory, open and running. It is
// to be the same in the last quarter of the time as in the second.
//
// The agent is bin/virtual-kubelet, with provider mock, process or kubernetes; the control
// planes are real. How it fares with a provider that fails, too, is for the test of the same
// name in test/faults.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if newCommand().ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}

// faults is what goes wrong with the agent's requests, for most of each minute.
const faults = "delay=0.05 lost-answer=0.01 429=0.01 500=0.01 503=0.01 409=0.01 410=0.01 refused=0.01 drop-watch=0.2 stall-watch=0.05 partition=0.0005"

// settings are the flags.
type settings struct {
	bin, out string
	notes    []string
	provider string
	pods     int
	rate     float64 // pods replaced a second
	period   time.Duration
	every    time.Duration
	faults   string
	seed     uint64
}

func newCommand() *cobra.Command {
	var s settings
	command := &cobra.Command{
		Use:          "soak",
		Short:        "Have an agent run pods that come and go for hours, with faults of the API server, and see whether it keeps anything",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := s.check()
			if err != nil {
				return err
			}
			return (&soak{settings: s, plan: plan, progress: cmd.ErrOrStderr()}).run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.bin, "bin", "bin", "directory with controlplane and virtual-kubelet")
	flags.StringVar(&s.out, "out", "", "directory for the table as Markdown, as a picture, and as JSON with all samples (default: none)")
	flags.StringArrayVar(&s.notes, "note", nil, "what else one has to know to compare the figures, such as a revision (may be repeated)")
	flags.StringVar(&s.provider, "provider", "mock", "provider of the agent: "+strings.Join(providers, ", "))
	flags.IntVar(&s.pods, "pods", 1000, "number of pods at any time")
	flags.Float64Var(&s.rate, "rate", 5, "how many of them are replaced a second")
	flags.DurationVar(&s.period, "for", 4*time.Hour, "how long they come and go")
	flags.DurationVar(&s.every, "every", time.Minute, "time between two looks, of which the last third is without faults")
	flags.StringVar(&s.faults, "faults", faults, "shares of the agent's requests that go wrong, by kind of fault; none if empty")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the faults and of the pods")
	return command
}

func (s settings) check() (fault.Plan, error) {
	switch {
	case !slices.Contains(providers, s.provider):
		return nil, fmt.Errorf("--provider is %q: want one of %s", s.provider, strings.Join(providers, ", "))
	case s.pods < 1 || s.rate <= 0 || s.every <= 0:
		return nil, errors.New("--pods must be 1 at least, --rate and --every positive")
	case s.period < 4*s.every:
		return nil, fmt.Errorf("--for is %v: want four times --every at least, as quarters are compared", s.period)
	}
	plan, err := fault.ParsePlan(s.faults)
	if err != nil {
		return nil, fmt.Errorf("--faults: %w", err)
	}
	return plan, nil
}
