package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/junit"
	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/specs"
)

// report is the outcome of a run.
type report struct {
	node, setup, kubernetes string

	results []result
	begin   time.Time
	elapsed time.Duration
}

// compare marks the specs that are known to fail.
func (r *report) compare(known map[string]specs.Known) {
	for i, result := range r.results {
		k := known[result.name]
		if k.Kind == specs.Fails || k.Kind == specs.Depends && result.state == failed {
			r.results[i].known, r.results[i].reason = true, k.Reason
		}
	}
}

func (r *report) count(want state) int {
	n := 0
	for _, result := range r.results {
		if result.state == want {
			n++
		}
	}
	return n
}

func (r *report) counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d left out, %d skipped, %d not run",
		r.count(passed), r.count(failed), r.count(leftOut), r.count(skipped), r.count(notRun))
}

func (r *report) write(dir string) error {
	junit, err := r.junit()
	if err != nil {
		return fmt.Errorf("make junit.xml: %w", err)
	}
	for name, data := range map[string][]byte{"results.md": r.markdown(), "junit.xml": junit} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	return nil
}

// verdict reports whether the specs that failed are the expected ones.
func (r *report) verdict(out io.Writer, dir string) error {
	var problems []error
	for _, result := range r.results {
		switch {
		case result.state == failed && !result.known:
			problems = append(problems, fmt.Errorf("failed: %s: %s (see %s)", result.name, result.message, result.output))
		case result.state == passed && result.known:
			problems = append(problems, fmt.Errorf("passed, although it is expected to fail: %s: take it off the list of expected failures", result.name))
		}
	}
	fmt.Fprintf(out, "%v, results in %s\n", r.elapsed.Round(time.Second), dir)
	fmt.Fprintf(out, "%s\n", r.counts())
	return errors.Join(problems...)
}

func (r *report) markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance of node %s\n\n%s\n\nKubernetes %s, %s: %d specs in %v: %s\n\n", r.node, r.setup,
		r.kubernetes, r.begin.UTC().Format(time.DateOnly), len(r.results), r.elapsed.Round(time.Second), r.counts())
	b.WriteString("| spec | result | seconds | why |\n| --- | --- | ---: | --- |\n")
	for _, result := range r.results {
		outcome := string(result.state)
		if result.known {
			outcome += " (known to fail)"
		}
		why := shorten(result.message, 300)
		if result.reason != "" {
			why = result.reason + " (" + why + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", escape(result.name), outcome, result.seconds, escape(why))
	}
	return []byte(b.String())
}

// escape keeps text in its cell and literal.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "`", "'", "\n", " ").Replace(text)
}

func shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

func (r *report) junit() ([]byte, error) {
	suite := junit.Suite{
		Name:       "node " + r.node,
		Tests:      len(r.results),
		Failures:   r.count(failed),
		Skipped:    r.count(skipped) + r.count(notRun) + r.count(leftOut),
		Seconds:    r.elapsed.Seconds(),
		Begin:      r.begin.UTC().Truncate(time.Second),
		Properties: []junit.Property{{Name: junit.Kubernetes, Value: r.kubernetes}, {Name: junit.Setup, Value: r.setup}},
	}
	for _, result := range r.results {
		c := junit.Case{Name: result.name, Class: "conformance", Seconds: result.seconds}
		switch result.state {
		case failed:
			c.Failure = &junit.Message{Text: result.message}
		case skipped, notRun, leftOut:
			c.Skipped = &junit.Message{Text: result.message}
		}
		suite.Cases = append(suite.Cases, c)
	}
	return suite.Encode()
}
