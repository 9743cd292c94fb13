package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
)

// history is what is done to an agent, to its API server and to its provider,
// step by step. Its text, which is what testdata holds, has the seed and the shape
// of the provider in its first line, and a step in each other.
type history struct {
	seed  uint64 // of the faults
	shape shape
	steps []string
}

func (h history) String() string {
	return fmt.Sprintf("seed %d provider %s\n%s\n", h.seed, h.shape, strings.Join(h.steps, "\n"))
}

func parseHistory(text string) (h history, err error) {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return h, fmt.Errorf("the history is empty")
	}
	var name string
	if _, err := fmt.Sscanf(lines[0], "seed %d provider %s", &h.seed, &name); err != nil {
		return h, fmt.Errorf("%q: %w", lines[0], err)
	}
	for _, shape := range shapes {
		if shape.String() == name {
			h.shape, h.steps = shape, lines[1:]
			return h, nil
		}
	}
	return h, fmt.Errorf("%q: no provider has that shape", name)
}

// drawHistory draws a history of so many steps.
func drawHistory(seed uint64, steps int) history {
	d := drawing{random: rand.New(rand.NewPCG(seed, 1))}
	h := history{seed: seed, shape: shapes[d.random.IntN(len(shapes))]}
	// Not all kinds of faults at once: that would hide what each does.
	d.apiKinds = d.some(fault.TransportKinds)
	d.providerKinds = d.some(slices.Concat(fault.ProviderKinds, fault.CreateKinds))
	for len(h.steps) < steps {
		h.steps = append(h.steps, d.step())
	}
	return h
}

// drawing draws steps.
type drawing struct {
	random                  *rand.Rand
	apiKinds, providerKinds []fault.Kind
}

func (d drawing) one(of ...string) string { return of[d.random.IntN(len(of))] }

// some draws a few kinds; delays, which separate what would happen in the same
// moment, are always among them.
func (d drawing) some(kinds []fault.Kind) []fault.Kind {
	drawn := []fault.Kind{fault.Delay}
	for range d.random.IntN(4) {
		drawn = append(drawn, kinds[d.random.IntN(len(kinds))])
	}
	return drawn
}

func (d drawing) plan(kinds []fault.Kind) fault.Plan {
	plan := fault.Plan{}
	for _, kind := range kinds {
		rate := []float64{0.05, 0.2, 0.5, 1}[d.random.IntN(4)]
		switch kind {
		case fault.Hang, fault.Stubborn, fault.Partition, fault.Vanish:
			rate /= 10
		}
		plan[kind] = rate
	}
	return plan
}

func (d drawing) step() string {
	name := d.one("a", "b", "c")
	switch n := d.random.IntN(100); {
	case n < 20:
		return "create " + name + " " + d.one(behaviours...) + d.one("", "", "", "", " never", " finalizer", " optional")
	case n < 26:
		return "update " + name
	case n < 36:
		return "delete " + name + d.one("", "", " 1", " 40")
	case n < 40:
		return "force " + name
	case n < 47:
		return "recreate " + name + " " + d.one(behaviours...)
	case n < 49:
		return "unfinalize " + name
	case n < 51:
		return "condition " + name
	case n < 53:
		return "drift " + name
	case n < 57:
		return d.one("kill", "stop")
	case n < 62:
		return "start"
	case n < 67:
		return "api " + d.plan(d.apiKinds).String()
	case n < 72:
		return "provider " + d.plan(d.providerKinds).String()
	case n < 76:
		return d.one("partition ", "silence ") + d.wait()
	case n < 78:
		return "compact"
	case n < 79:
		return "node-delete"
	case n < 82:
		return "heal"
	case n < 85:
		return "orphan " + name
	case n < 88:
		return "empty " + d.wait()
	case n < 90:
		return "late " + name + " " + d.one("7s", "15s", "45s", "90s")
	case n < 91:
		return "clock " + d.one("0s", "20s", "90s")
	}
	return "wait " + d.wait()
}

func (d drawing) wait() string {
	return d.one("1ms", "30ms", "150ms", "500ms", "1s", "3s", "7s", "15s", "20s", "45s", "90s", "200s")
}

// grace is the word at index of a step as a number of seconds, nil if it has no
// such word.
func grace(words []string, index int) *int64 {
	if len(words) <= index {
		return nil
	}
	n, err := strconv.ParseInt(words[index], 10, 64)
	if err != nil {
		panic(fmt.Sprintf("step %q: %v", words, err))
	}
	return &n
}

func duration(words []string) time.Duration {
	d, err := time.ParseDuration(words[1])
	if err != nil {
		panic(fmt.Sprintf("step %q: %v", words, err))
	}
	return d
}
