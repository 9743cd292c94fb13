package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/gauge"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/load"
	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
)

// podsBench creates and deletes pods on one node, once for each agent and round.
type podsBench struct {
	rig
	pods     int
	workers  int
	rate     float64
	rounds   int
	shape    string
	remote   bool
	settle   time.Duration
	rest     time.Duration
	profiles string
}

func newPodsCommand() *cobra.Command {
	b := &podsBench{}
	command := &cobra.Command{
		Use:   "pods",
		Short: "Create and delete pods on one node, with the floor and with virtual-kubelet in turns",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			return b.run(cmd, b.name(), false, b.scenario)
		},
	}
	flags := command.Flags()
	b.addFlags(flags)
	flags.IntVar(&b.pods, "pods", 1000, "number of pods")
	flags.IntVar(&b.workers, "workers", 20, "requests of the load at a time")
	flags.Float64Var(&b.rate, "rate", 0, "most requests of the load a second, 0 for no limit")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each agent is measured; the table has the medians")
	flags.StringVar(&b.shape, "shape", "plain", "kind of the pods: plain, or rich (three containers with probes and 20 variables each)")
	flags.BoolVar(&b.remote, "remote", false, "measure virtual-kubelet with a provider in another process, too: CPU and RSS are then those of both, the other figures those of virtual-kubelet")
	flags.DurationVar(&b.settle, "settle", 5*time.Second, "how long pods run before their memory is read and they are deleted")
	flags.DurationVar(&b.rest, "rest", 5*time.Second, "how long after the last pod is gone the memory is read again; what is remembered of deleted pods is kept for a minute")
	flags.StringVar(&b.profiles, "profiles", "", "directory for profiles of virtual-kubelet in its first round, which make that round slower (default: none)")
	return command
}

func (b *podsBench) check() error {
	if _, ok := shapes[b.shape]; !ok {
		return fmt.Errorf("--shape: there is no kind of pods %q", b.shape)
	}
	if b.pods < 1 || b.workers < 1 || b.rounds < 1 {
		return errors.New("--pods, --workers and --rounds must be 1 at least")
	}
	return nil
}

// name is of the files of --out.
func (b *podsBench) name() string {
	name := fmt.Sprintf("pods-%d", b.pods)
	if b.shape != "plain" {
		name += "-" + b.shape
	}
	if b.remote {
		name += "-remote"
	}
	return name
}

// scenario measures all agents in turns.
func (b *podsBench) scenario(ctx context.Context) (report.Result, error) {
	floor, err := b.floor()
	if err != nil {
		return report.Result{}, err
	}
	var nodes []string
	for round := range b.rounds {
		nodes = append(nodes, nodeInRound(ourName, round), nodeInRound(remoteName, round))
	}
	ours, err := b.configured(map[string]string{"pods": strconv.Itoa(b.pods)}, nodes...)
	if err != nil {
		return report.Result{}, err
	}
	given := []agent{floor, ours}
	if b.remote {
		served, err := b.served()
		if err != nil {
			return report.Result{}, err
		}
		given = append(given, served)
	}
	agents, err := b.agents(given...)
	if err != nil {
		return report.Result{}, err
	}
	result := report.Result{
		Title: strings.Replace(fmt.Sprintf("%d %s pods on one node", b.pods, b.shape), "plain ", "", 1), Measures: b.measures(), RequestUnit: "a pod",
		Conditions: []string{fmt.Sprintf("%d %s pods, %d workers create and delete, the agents have %d, rounds: %d", b.pods, b.shape, b.workers, b.agentWorkers, b.rounds)},
	}
	if b.remote {
		result.Title += ", also with a provider in another process"
	}
	for _, a := range agents {
		result.Agents = append(result.Agents, report.Agent{Name: a.name, Floor: a.name == floorName})
	}
	order := make([]int, len(agents))
	for i := range order {
		order[i] = i
	}
	for round := range b.rounds {
		for _, i := range order {
			b.step("round %d of %d, %s begins", round+1, b.rounds, agents[i].name)
			s, err := b.measure(ctx, agents[i], round)
			if err != nil {
				return result, fmt.Errorf("%s, round %d: %w", agents[i].name, round+1, err)
			}
			result.Agents[i].Samples = append(result.Agents[i].Samples, s)
			b.step("round %d of %d, %s: created %.0f/s with %.2f s of CPU, deleted %.0f/s with %.2f s of CPU",
				round+1, b.rounds, agents[i].name, s.Values[createThroughput], s.Values[createCPU], s.Values[deleteThroughput], s.Values[deleteCPU])
		}
		slices.Reverse(order) // who comes first has the smaller etcd
	}
	return result, nil
}

func nodeInRound(agent string, round int) string {
	return fmt.Sprintf("%s-%d", nodeOf(agent), round)
}

// measure runs the pods once with one agent, on a node and in a namespace of
// their own.
func (b *podsBench) measure(ctx context.Context, a agent, round int) (s report.Sample, err error) {
	id := nodeInRound(a.name, round)
	if err := b.newNamespace(ctx, id); err != nil {
		return s, err
	}
	p, err := b.start(ctx, a, id, 1)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.end(ctx, p)) }()
	l := b.load(id, p.nodes)
	run := &podsRun{podsBench: b, load: l, agent: p}
	if b.profiles != "" && a.name == ourName && round == 0 {
		stop := b.profile(ctx, id)
		defer func() { err = errors.Join(err, stop()) }()
		run.profiled = true
	}
	if err := run.all(ctx); err != nil {
		return s, err
	}
	return run.sample(), nil
}

func (b *podsBench) load(namespace string, nodes []string) *load.Load {
	return &load.Load{
		Client: b.client, Namespace: namespace, Nodes: nodes, Pods: b.pods, Workers: b.workers, Rate: b.rate,
		Shape: shapes[b.shape], Timeout: 20 * time.Minute,
	}
}

// podsRun is a run of one agent.
type podsRun struct {
	*podsBench
	load     *load.Load
	agent    *running
	profiled bool

	create, delete          phase
	requests                gauge.Requests // but for those of the load
	running, after          use[gauge.Memory]
	empty, full, done, left gauge.Metrics // before the pods, with them, when they are gone, and after a rest
}

// phase is what a phase of the load took, and the agent for it.
type phase struct {
	load.Phase
	cpu use[time.Duration]
}

func (r *podsRun) all(ctx context.Context) (err error) {
	r.requests = gauge.Requests{}
	if r.empty, err = r.collected(ctx, r.agent); err != nil {
		return err
	}
	err = r.counting(ctx, func() (err error) {
		if r.create, err = timed(ctx, r.agent, r.load.Create); err != nil {
			return err
		}
		return sleep(ctx, r.settle) // what is not needed to run the pods costs as well
	})
	if err != nil {
		return err
	}
	if r.running, err = r.agent.rss(); err != nil {
		return err
	}
	if r.full, err = r.collected(ctx, r.agent); err != nil {
		return err
	}
	if r.profiled {
		if err := r.saveProfile(ctx, r.agent.nodes[0], "heap", "heap?gc=1"); err != nil {
			return err
		}
	}
	err = r.counting(ctx, func() (err error) {
		if r.delete, err = timed(ctx, r.agent, r.load.Delete); err != nil {
			return err
		}
		return sleep(ctx, time.Second) // a pod is gone before the request is counted that removed it
	})
	if err != nil {
		return err
	}
	if r.done, err = r.metricsOf(ctx, r.agent); err != nil {
		return err
	}
	if r.after, err = r.agent.rss(); err != nil {
		return err
	}
	if err := sleep(ctx, r.rest); err != nil {
		return err
	}
	r.left, err = r.collected(ctx, r.agent)
	return err
}

// counting adds the requests during do.
func (r *podsRun) counting(ctx context.Context, do func() error) error {
	before, err := gauge.ReadRequests(ctx, r.client)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := gauge.ReadRequests(ctx, r.client)
	if err != nil {
		return err
	}
	for kind, count := range after.Since(before) {
		if kind.Resource != "" { // as health checks and metrics have none
			r.requests[kind] += count
		}
	}
	return nil
}

// timed adds what an agent used during a phase.
func timed(ctx context.Context, a *running, do func(context.Context) (load.Phase, error)) (phase, error) {
	before, err := a.cpu()
	if err != nil {
		return phase{}, err
	}
	p, err := do(ctx)
	if err != nil {
		return phase{}, err
	}
	after, err := a.cpu()
	return phase{p, use[time.Duration]{after.all - before.all, after.provider - before.provider}}, err
}
