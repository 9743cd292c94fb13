package nodecheck

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is what a run of the checks has found.
type Report struct {
	// Node is the name of the node, Version that of its kubelet.
	Node, Version string
	Began         time.Time
	Took          time.Duration
	Results       []Result
}

// count is how many checks had each outcome.
type count map[Outcome]int

func (r *Report) count(about func(Check) bool) count {
	c := count{}
	for _, result := range r.Results {
		if about(result.Check) {
			c[result.Outcome]++
		}
	}
	return c
}

// Markdown writes a table of what the node can do, one of the checks, and what
// was seen of those that failed.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	all := r.count(func(Check) bool { return true })
	fmt.Fprintf(&b, "# Conformance of node %s\n\n", r.Node)
	fmt.Fprintf(&b, "Kubelet version %s, %s, in %v: %d checks passed, %d failed, %d are not supported, %d were skipped.\n\n",
		r.Version, r.Began.UTC().Format(time.RFC3339), r.Took.Round(time.Second), all[Passed], all[Failed], all[NotSupported], all[Skipped])
	b.WriteString("| capability | passed | failed | not supported | skipped |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, capability := range append([]Capability{Core}, Capabilities()...) {
		c := r.count(func(check Check) bool { return check.Capability() == capability })
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", capability, c[Passed], c[Failed], c[NotSupported], c[Skipped])
	}
	b.WriteString("\n| capability | check | what is checked | result | why |\n| --- | --- | --- | --- | --- |\n")
	for _, result := range r.Results {
		why, _, _ := strings.Cut(result.Why, "\n")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", result.Check.Capability(), result.Check.Name, cell(result.Check.Title), result.Outcome, cell(why))
	}
	for _, result := range r.Results {
		if result.Outcome == Failed {
			fmt.Fprintf(&b, "\n## %s failed\n\n%s\n", result.Check.Name, indent(result.Why+"\n"+result.Details))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell makes a text fit into a table of Markdown.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// indent makes a text a block of code of Markdown, with any content.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
	}
	return strings.TrimRight(b.String(), "\n ")
}

// The report as JUnit has it.
type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string      `xml:"name,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Skipped   int         `xml:"skipped,attr"`
		Time      string      `xml:"time,attr"`
		Timestamp string      `xml:"timestamp,attr"`
		Cases     []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes the report in JUnit's format. What is not supported counts as
// skipped, with the provider's word as the message.
func (r *Report) JUnit(w io.Writer) error {
	suite := junitSuite{Name: r.Node, Tests: len(r.Results), Time: seconds(r.Took), Timestamp: r.Began.UTC().Format("2006-01-02T15:04:05")}
	for _, result := range r.Results {
		c := junitCase{Class: string(result.Check.Capability()), Name: result.Check.Name, Time: seconds(result.Took)}
		switch result.Outcome {
		case Passed:
		case Failed:
			suite.Failures++
			c.Failure = &junitMessage{printable(result.Why), printable(result.Details)}
		case NotSupported:
			suite.Skipped++
			c.Skipped = &junitMessage{Message: "not supported: " + printable(result.Why)}
		case Skipped:
			suite.Skipped++
			c.Skipped = &junitMessage{Message: printable(result.Why)}
		}
		suite.Cases = append(suite.Cases, c)
	}
	text, err := xml.MarshalIndent(junitSuites{Suite: suite}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// printable leaves out what XML cannot have.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
