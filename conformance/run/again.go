package main

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/junit"
	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/specs"
)

// againBatch is the number of the first batch of specs that run again: the output
// of the run before stays.
const againBatch = 500

// readBefore reads the results of the run before.
func readBefore(dir string) (*junit.Suite, error) {
	return junit.Read(filepath.Join(dir, "junit.xml"))
}

// failedBefore returns those of the specs that failed.
func failedBefore(before *junit.Suite, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.ContainsFunc(before.Cases, func(c junit.Case) bool { return c.Name == name && c.Failure != nil })
	})
}

// addBefore completes a report of specs that ran again by the results of the
// others.
func (r *report) addBefore(before *junit.Suite, known map[string]specs.Known) {
	again := map[string]result{}
	for _, result := range r.results {
		again[result.name] = result
	}
	r.results = nil
	for _, c := range before.Cases {
		old := resultOf(c, known)
		if now, ok := again[c.Name]; ok {
			if now.state == passed {
				now.message = "passed when it ran again; before: " + old.message
			}
			old = now
		}
		r.results = append(r.results, old)
	}
	r.begin = before.Begin
	r.elapsed += time.Duration(before.Seconds * float64(time.Second))
}

// resultOf is the way back from a report.
func resultOf(c junit.Case, known map[string]specs.Known) result {
	r := result{name: c.Name, state: passed, seconds: c.Seconds}
	switch {
	case c.Failure != nil:
		r.state, r.message = failed, c.Failure.Text
	case c.Skipped != nil:
		r.state, r.message = skipped, c.Skipped.Text
		if known[c.Name].Kind == specs.LeftOut {
			r.state = leftOut
		}
	}
	return r
}
