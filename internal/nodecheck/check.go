package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// notSupported is the reason, or the beginning of the message, of the event by
// which a provider says that it cannot do what a pod asks for.
const notSupported = "ProviderNotSupported"

// Check is one thing that is checked of a node.
type Check struct {
	// Name says which it is, in lower case with hyphens.
	Name string
	// Title is what is so if it passes.
	Title string
	// Needs are the capabilities that it needs: first the one that it is about.
	// None stands for Core.
	Needs []Capability
	// Restarts says that it ends the agent of the node and starts it again, by
	// Options.Restart: no other check may run meanwhile.
	Restarts bool
	// OnDisk says that it looks for files of pods in Options.Directories.
	OnDisk bool

	noPods bool // it makes no pod
	run    func(context.Context, *Scope) error
}

// Capability is what the check is about.
func (c Check) Capability() Capability {
	if len(c.Needs) == 0 {
		return Core
	}
	return c.Needs[0]
}

// Checks returns all checks, by capability in the order of Capabilities.
func Checks() []Check {
	all := slices.Concat(coreChecks, commandChecks, logChecks, execChecks, attachChecks, portForwardChecks, statsChecks,
		volumeChecks, diskChecks, isolationChecks, tokenChecks, initContainerChecks, sidecarChecks, restartChecks, deadlineChecks, probeChecks, hookChecks,
		terminationMessageChecks, ephemeralContainerChecks, resizeChecks, survivalChecks)
	return all
}

// Outcome is what came of a check.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	// NotSupported: the provider itself reported that it cannot do this, by the
	// status 501 of the kubelet API, or by an event ProviderNotSupported.
	NotSupported Outcome = "not supported"
	// Skipped: the check was not made.
	Skipped Outcome = "skipped"
)

// Result is the result of a check.
type Result struct {
	Check   Check
	Outcome Outcome
	// Why is why it did not pass, in a line or a few.
	Why string
	// Details are what was seen of the check's pods, where it failed.
	Details string
	Took    time.Duration
	// Blocked is set where the check was skipped because another one has failed, without
	// which it cannot pass.
	Blocked bool

	lacks bool // it has failed since what it is about is not there at all
}

// Run makes the check, and cleans up after it.
func (c Check) Run(ctx context.Context, n *Node) Result {
	began := time.Now()
	s := n.Begin(c.Name)
	checking, cancel := within(ctx, n.Timeout)
	err := c.run(checking, s)
	cancel()
	result := Result{Check: c, Outcome: Passed}
	if err != nil {
		result.Outcome, result.Why = s.outcomeOf(ctx, err), err.Error()
		result.Details = s.Describe(ctx)
		result.lacks = result.Outcome == Failed && lacks(err)
	}
	if err := s.End(ctx); err != nil {
		result.Outcome, result.Why = Failed, strings.TrimSpace(result.Why+"\n"+err.Error())
	}
	result.Took = time.Since(began)
	return result
}

// outcomeOf returns NotSupported if a check failed because the provider reported that
// it cannot do what the check needs, else Failed.
func (s *Scope) outcomeOf(ctx context.Context, err error) Outcome {
	if statusCode(err) == http.StatusNotImplemented {
		return NotSupported
	}
	ctx, cancel := within(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, pod := range s.all() {
		events, _ := s.eventsOf(ctx, pod) // the details say so if they cannot be read
		for _, event := range events {
			if event.Reason == notSupported || strings.Contains(event.Message, notSupported) {
				return NotSupported
			}
		}
	}
	return Failed
}

// Selection says which checks are made.
type Selection struct {
	// Capabilities are those that checks may need. Core is always there.
	Capabilities []Capability
	// Skip are names of checks, and capabilities, to be skipped.
	Skip []string
}

// Reason returns why a check is skipped, or "".
func (s Selection) Reason(c Check, n *Node) string {
	for _, needed := range append([]Capability{c.Capability()}, c.Needs...) {
		switch {
		case slices.Contains(s.Skip, string(needed)):
			return fmt.Sprintf("%s is to be skipped", needed)
		case needed != Core && !slices.Contains(s.Capabilities, needed):
			return fmt.Sprintf("%s is not declared", needed)
		}
	}
	if slices.Contains(s.Skip, c.Name) {
		return "it is to be skipped"
	}
	if len(n.Shell) == 0 && slices.Contains(c.Needs, Commands) {
		return "no shell is given"
	}
	if c.Restarts && n.Restart == nil {
		return "nothing is given that restarts the node's agent"
	}
	if c.OnDisk && len(n.Directories) == 0 {
		return "no directories of the provider are given"
	}
	return ""
}

var errInterrupted = errors.New("interrupted")

// RunAll makes the checks that are selected, in a Series, as many at once as parallel says,
// then those that restart the node's agent, one at a time, and returns the results of all
// checks in the order of Checks. done, if not nil, is called as soon as there is a
// result, by one goroutine at a time. When ctx ends, no more checks are begun, and the
// error says so.
func RunAll(ctx context.Context, n *Node, selection Selection, parallel int, done func(Result)) ([]Result, error) {
	checks := Checks()
	results := make([]Result, len(checks))
	series := NewSeries(ctx, n, func(c Check) bool { return selection.Reason(c, n) == "" })
	var mu sync.Mutex
	run := func(i int) {
		result := Result{Check: checks[i], Outcome: Skipped, Why: selection.Reason(checks[i], n)}
		if result.Why == "" && ctx.Err() != nil {
			result.Why = errInterrupted.Error()
		}
		if result.Why == "" {
			result = series.Result(checks[i])
		}
		mu.Lock()
		defer mu.Unlock()
		results[i] = result
		if done != nil {
			done(result)
		}
	}
	var group errgroup.Group
	group.SetLimit(max(parallel, 1))
	for i, check := range checks {
		if check.Restarts {
			continue
		}
		group.Go(func() error {
			run(i)
			return nil
		})
	}
	_ = group.Wait() // results have what went wrong
	for i, check := range checks {
		if check.Restarts {
			run(i)
		}
	}
	if ctx.Err() != nil {
		return results, errInterrupted
	}
	return results, nil
}
