package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/specs"
)

// maxBatch is how many specs a process of the suite gets, in weights. To start
// one costs about two seconds of processor time; a process that has to be killed
// takes the results of the others with it, which then run again.
const maxBatch = 8

// state says how a spec ended.
type state string

const (
	passed  state = "passed"
	failed  state = "failed"
	skipped state = "skipped"
	notRun  state = "not run"
	leftOut state = "left out"
)

// result is what became of a spec.
type result struct {
	name    string
	state   state
	seconds float64
	message string // why it failed or was skipped
	output  string // what the suite wrote
	known   bool   // it is expected to fail
	reason  string // why that is so
}

// scheduler hands specs to processes of the suite.
type scheduler struct {
	options options
	order   []string
	out     io.Writer

	mu      sync.Mutex
	queue   []string        // in the order in which they begin
	slow    []string        // run beside the others: they only wait
	lanes   [][]string      // each one after the other, beside the others
	serial  []string        // run alone, in the end
	again   map[string]bool // were in a process that did not come to them
	done    map[string]result
	failed  int // of those
	batches int
}

func newScheduler(names []string, o options, out io.Writer) *scheduler {
	s := &scheduler{options: o, order: names, out: out, again: map[string]bool{}, done: map[string]result{}}
	var heavy []string // first, so that no process is left with one in the end
	lanes := map[int][]string{}
	for _, name := range names {
		switch {
		case o.sharedNetwork && portOf(name) != 0:
			lanes[portOf(name)] = append(lanes[portOf(name)], name)
		case isSerial(name):
			s.serial = append(s.serial, name)
		case isSlow(name):
			s.slow = append(s.slow, name)
		case weight(name) > 1:
			heavy = append(heavy, name)
		default:
			s.queue = append(s.queue, name)
		}
	}
	s.queue = append(heavy, s.queue...)
	for _, port := range slices.Sorted(maps.Keys(lanes)) {
		s.lanes = append(s.lanes, lanes[port])
	}
	return s
}

// leaveOut takes out the specs that are known to be of no use to run.
func (s *scheduler) leaveOut(known map[string]specs.Known) {
	gone := func(name string) bool {
		if k := known[name]; k.Kind == specs.LeftOut {
			s.done[name] = result{name: name, state: leftOut, message: k.Reason}
			return true
		}
		return false
	}
	s.queue, s.slow, s.serial = slices.DeleteFunc(s.queue, gone), slices.DeleteFunc(s.slow, gone), slices.DeleteFunc(s.serial, gone)
	for i, lane := range s.lanes {
		s.lanes[i] = slices.DeleteFunc(lane, gone)
	}
}

// run returns when every spec has a result, or the context has ended.
func (s *scheduler) run(ctx context.Context) {
	var workers sync.WaitGroup
	for i := range s.lanes {
		workers.Go(func() { s.work(ctx, func() ([]string, int) { return s.nextInLane(ctx, &s.lanes[i]) }) })
	}
	for range s.options.procs {
		workers.Go(func() { s.work(ctx, func() ([]string, int) { return s.nextOf(&s.slow) }) })
		workers.Go(func() { s.work(ctx, s.next) })
	}
	workers.Wait()
	s.work(ctx, s.next) // what a worker put back when the others had gone
	s.queue, s.serial = s.serial, nil
	s.work(ctx, s.next)
}

func (s *scheduler) work(ctx context.Context, next func() ([]string, int)) {
	for ctx.Err() == nil {
		names, number := next()
		if len(names) == 0 {
			return
		}
		s.finish(ctx, names, runBatch(ctx, s.options, names, number))
	}
}

// nextOf takes one spec from a list.
func (s *scheduler) nextOf(list *[]string) ([]string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(*list) == 0 {
		return nil, 0
	}
	names := (*list)[:1]
	*list = (*list)[1:]
	s.batches++
	return names, s.batches
}

// nextInLane takes one spec from a list when the port that it needs is free.
func (s *scheduler) nextInLane(ctx context.Context, lane *[]string) ([]string, int) {
	names, number := s.nextOf(lane)
	if len(names) > 0 {
		awaitFree(ctx, portOf(names[0]))
	}
	return names, number
}

// freeTimeout is how long the pods of the spec before may take to end: their
// namespace is deleted behind the suite's back.
const freeTimeout = time.Minute

// awaitFree waits until nobody listens at a port of this machine. When that takes
// too long, the spec is for finding out why.
func awaitFree(ctx context.Context, port int) {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return
		}
		_ = conn.Close()
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// next takes specs from the queue: fewer and fewer, so that all processes end at
// about the same time. One that did not run with others ends its batch.
func (s *scheduler) next() ([]string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := min(maxBatch, max(1, len(s.queue)/(2*s.options.procs)))
	count := 0
	for ; count < len(s.queue) && size > 0; count++ {
		if size -= weight(s.queue[count]); s.again[s.queue[count]] {
			size = 0
		}
	}
	names := s.queue[:count]
	s.queue = s.queue[count:]
	s.batches++
	return names, s.batches
}

// finish keeps the results. What did not run is tried once more.
func (s *scheduler) finish(ctx context.Context, names []string, results map[string]result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		r := results[name]
		if r.state == notRun && !s.again[name] && ctx.Err() == nil {
			s.again[name] = true
			if s.options.sharedNetwork && portOf(name) != 0 {
				s.serial = append(s.serial, name)
			} else {
				s.queue = append(s.queue, name)
			}
			continue
		}
		if r.state == notRun && ctx.Err() == nil {
			r.state = failed
		}
		s.done[name] = r
		if r.state == failed {
			s.failed++
		}
		fmt.Fprintf(s.out, "%s %3d/%d, %d failed: %-7s %6.1fs %s\n", time.Now().Format(time.TimeOnly), len(s.done), len(s.order), s.failed, r.state, r.seconds, name)
	}
}

// results returns all results in the order of the list.
func (s *scheduler) results() []result {
	var list []result
	for _, name := range s.order {
		r, ok := s.done[name]
		if !ok {
			r = result{name: name, state: notRun, message: "the run was interrupted"}
		}
		list = append(list, r)
	}
	return list
}
