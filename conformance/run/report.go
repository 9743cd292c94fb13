package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is the outcome of a run.
type report struct {
	node    string
	results []result
	elapsed time.Duration
}

// compare marks the specs that are known to fail. After a "? ", a spec is one
// that fails on some machines only.
func (r *report) compare(known []string) {
	for i, result := range r.results {
		depends := slices.Contains(known, "? "+result.name)
		r.results[i].known = slices.Contains(known, result.name) || depends && result.state == failed
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

func (r *report) write(folder string) error {
	junit, err := r.junit()
	if err != nil {
		return fmt.Errorf("make junit.xml: %w", err)
	}
	for name, data := range map[string][]byte{"results.md": r.markdown(), "junit.xml": junit} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	return nil
}

// verdict tells whether the specs that failed are the expected ones.
func (r *report) verdict(out io.Writer, folder string) error {
	var problems []error
	for _, result := range r.results {
		switch {
		case result.state == failed && !result.known:
			problems = append(problems, fmt.Errorf("failed: %s: %s (see %s)", result.name, result.message, result.output))
		case result.state == passed && result.known:
			problems = append(problems, fmt.Errorf("passed, although it is said to fail: %s: take it off the list of expected failures", result.name))
		}
	}
	fmt.Fprintf(out, "%v, results in %s\n", r.elapsed.Round(time.Second), folder)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.count(passed), r.count(failed), r.count(skipped))
	return errors.Join(problems...)
}

func (r *report) markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance of node %s\n\n%d specs in %v: %d passed, %d failed, %d skipped, %d not run\n\n",
		r.node, len(r.results), r.elapsed.Round(time.Second), r.count(passed), r.count(failed), r.count(skipped), r.count(notRun))
	b.WriteString("| spec | result | seconds | why |\n| --- | --- | ---: | --- |\n")
	for _, result := range r.results {
		outcome := string(result.state)
		if result.known {
			outcome += " (known to fail)"
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", escape(result.name), outcome, result.seconds, escape(shorten(result.message, 300)))
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

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     float64     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    float64       `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

func (r *report) junit() ([]byte, error) {
	suite := junitSuite{
		Name:     "node " + r.node,
		Tests:    len(r.results),
		Failures: r.count(failed),
		Skipped:  r.count(skipped) + r.count(notRun),
		Time:     r.elapsed.Seconds(),
	}
	for _, result := range r.results {
		c := junitCase{Name: result.name, Class: "conformance", Time: result.seconds}
		switch result.state {
		case failed:
			c.Failure = &junitMessage{result.message}
		case skipped, notRun:
			c.Skipped = &junitMessage{result.message}
		}
		suite.Cases = append(suite.Cases, c)
	}
	data, err := xml.MarshalIndent(suite, "", "  ")
	return append([]byte(xml.Header), append(data, '\n')...), err
}
