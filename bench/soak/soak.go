package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/report"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// soak is a soak that goes on.
type soak struct {
	settings
	plan     fault.Plan
	progress io.Writer

	dir    string
	home   *cluster
	others []*cluster // in which the provider has its pods
	agent  *agent
	pop    *population
	course map[string][]float64
}

// The measures. Those of course are taken at each look.
const (
	heap       = "live heap"
	rss        = "RSS"
	goroutines = "goroutines"
	files      = "open files"
	lateness   = "pods that are a minute late"
	replaced   = "pods replaced"
	broken     = "requests of the agent"
	podsLeft   = "pods that the agent counts afterwards"
	left       = "pods, processes and directories that are left"
)

var ofCourse = []report.Measure{{Name: heap, Unit: "MB"}, {Name: rss, Unit: "MB"}, {Name: goroutines}, {Name: files}, {Name: lateness}}

const (
	secondQuarter = ", second quarter"
	lastQuarter   = ", last quarter"
	growth        = ", last ÷ second"
	highest       = ", highest"
)

// grows is how many times the median of the second quarter that of the last may be. In the first quarter caches fill
// that have a bound, such as what client-go remembers of events.
const grows = 1.1

func measures() (all []report.Measure) {
	for _, m := range ofCourse {
		if m.Name == lateness {
			continue
		}
		all = append(all, report.Measure{Name: m.Name + secondQuarter, Unit: m.Unit}, report.Measure{Name: m.Name + lastQuarter, Unit: m.Unit},
			report.Measure{Name: m.Name + growth, Goal: report.AtMost(grows)})
	}
	return append(all, report.Measure{Name: lateness + highest, Goal: report.AtMost(0)}, report.Measure{Name: replaced}, report.Measure{Name: broken},
		report.Measure{Name: podsLeft, Goal: report.AtMost(0)}, report.Measure{Name: left, Goal: report.AtMost(0)})
}

func (s *soak) run(ctx context.Context, out io.Writer) (err error) {
	if s.dir, err = os.MkdirTemp("", "soak-"); err != nil {
		return err
	}
	defer func() {
		if err == nil { // else the logs say why
			err = os.RemoveAll(s.dir)
		} else {
			err = fmt.Errorf("%w: the logs are in %s", err, s.dir)
		}
	}()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if s.home, err = s.newCluster(ctx, "home", namespace); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.home.close()) }()
	if s.provider == "kubernetes" {
		other, err := s.newCluster(ctx, "other", prefix+namespace)
		if err != nil {
			return err
		}
		s.others = append(s.others, other)
		defer func() { err = errors.Join(err, other.close()) }()
		if err := other.addFloor(ctx, fail); err != nil {
			return err
		}
	}
	sample, err := s.measure(ctx)
	if err != nil {
		return err
	}
	result := report.Result{
		Title: fmt.Sprintf("%v with %d pods of provider %s", s.period, s.pods, s.provider), Measures: measures(),
		Course: ofCourse, Every: s.every.Minutes(),
		Conditions: append([]string{fmt.Sprintf("%g of %d pods replaced a second for %v; in two thirds of each %v faults: %s", s.rate, s.pods, s.period, s.every, s.plan)},
			append(s.notes, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, fmt.Sprintf("%d CPUs", runtime.NumCPU()), time.Now().Format(time.DateOnly))...),
		Agents: []report.Agent{{Name: "virtual-kubelet", Samples: []report.Sample{sample}}},
	}
	if s.out != "" {
		if err := result.Save(s.out, fmt.Sprintf("soak-%s-%d", s.provider, s.pods)); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	return result.Text(out)
}

// measure runs the agent, and its pods.
func (s *soak) measure(ctx context.Context) (sample report.Sample, err error) {
	if s.agent, err = s.startAgent(ctx); err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, s.agent.stop()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with ctx
		select {
		case <-s.agent.process.Done():
			cancel(fmt.Errorf("the agent has ended: %w", s.agent.process.Err()))
		case <-ctx.Done():
		}
	}()
	s.step("%d pods are created", s.pods)
	if s.pop, err = s.newPopulation(ctx); err != nil {
		return sample, cause(ctx, err)
	}
	defer s.pop.close()
	go func() { // ends with the population
		if err := s.pop.wait(); err != nil {
			cancel(fmt.Errorf("the pods no longer come and go: %w", err))
		}
	}()
	s.step("they come and go for %v", s.period)
	s.course = map[string][]float64{}
	for end := time.Now().Add(s.period); time.Now().Before(end); {
		if err := s.round(ctx); err != nil {
			return sample, cause(ctx, err)
		}
	}
	s.step("all are deleted")
	return s.end(ctx)
}

// round has faults and then none, and looks.
func (s *soak) round(ctx context.Context) error {
	s.each(func(c *cluster) { c.way.Break(s.plan) })
	err := periodic.Sleep(ctx, s.every*2/3)
	s.each(func(c *cluster) { c.way.Calm() })
	if err := errors.Join(err, periodic.Sleep(ctx, s.every/3)); err != nil {
		return err
	}
	return s.look(ctx)
}

func (s *soak) each(do func(*cluster)) {
	for _, c := range append([]*cluster{s.home}, s.others...) {
		do(c)
	}
}

func (s *soak) look(ctx context.Context) error {
	values, err := s.agent.look(ctx)
	if err != nil {
		return err
	}
	late := s.pop.late(time.Now())
	values[lateness] = float64(len(late))
	for name, value := range values {
		s.course[name] = append(s.course[name], value)
	}
	s.step("%.1f MB of live heap, %.1f MB of RSS, %.0f goroutines, %.0f open files, %d pods replaced, a minute late: %v",
		values[heap], values[rss], values[goroutines], values[files], s.pop.replaced(), late[:min(len(late), 5)])
	return nil
}

// end deletes all pods, and compares.
func (s *soak) end(ctx context.Context) (report.Sample, error) {
	sample := report.Sample{Values: map[string]float64{replaced: float64(s.pop.replaced())}, Course: s.course}
	s.each(func(c *cluster) { sample.Values[broken] += float64(c.requests.Load()) })
	if err := s.pop.deleteAll(ctx); err != nil {
		return sample, err
	}
	if err := s.agent.forgets(ctx); err != nil {
		return sample, err
	}
	counted, err := s.agent.podsCounted(ctx)
	if err != nil {
		return sample, err
	}
	remains, err := s.remains(ctx)
	if err != nil {
		return sample, err
	}
	for _, what := range remains {
		s.step("left: %s", what)
	}
	sample.Values[podsLeft], sample.Values[left] = counted, float64(len(remains))
	for name, course := range s.course {
		if name == lateness {
			sample.Values[lateness+highest] = slices.Max(course)
			continue
		}
		second, last := quarters(course)
		sample.Values[name+secondQuarter], sample.Values[name+lastQuarter] = second, last
		sample.Values[name+growth] = last / second
	}
	return sample, nil
}

// remains are what is left of the pods besides the agent: pods in the other clusters, processes
// and directories of pods.
func (s *soak) remains(ctx context.Context) (remains []string, err error) {
	for _, c := range s.others {
		pods, err := c.pods(ctx)
		if err != nil {
			return nil, err
		}
		remains = append(remains, pods...)
	}
	processes, err := processesOf(s.root())
	if err != nil {
		return nil, err
	}
	remains = append(remains, processes...)
	dirs, err := filepath.Glob(filepath.Join(s.root(), "pods", "*"))
	return append(remains, dirs...), err
}

// step says what begins.
func (s *soak) step(format string, args ...any) {
	fmt.Fprintf(s.progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
