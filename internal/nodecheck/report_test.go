package nodecheck

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

func sampleReport() *Report {
	return &Report{Node: "vk", Version: "v1.36.3", Began: time.Unix(1700000000, 0), Took: 90 * time.Second, Results: []Result{
		{Check: Check{Name: "pod-runs", Title: "a pod runs"}, Outcome: Passed, Took: time.Second},
		{Check: Check{Name: "logs", Title: "logs | tails", Needs: []Capability{Logs}}, Outcome: Failed, Why: "no a|b\nand more", Details: "pod x: \x1b[1mphase Failed\n"},
		{Check: Check{Name: "exec-output", Title: "exec", Needs: []Capability{Exec}}, Outcome: NotSupported, Why: "501"},
		{Check: Check{Name: "resize", Title: "resize", Needs: []Capability{Resize}}, Outcome: Skipped, Why: "resize is not declared"},
	}}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := sampleReport().Markdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"# Conformance of node vk",
		"Kubelet version v1.36.3, 2023-11-14T22:13:20Z, in 1m30s: 1 checks passed, 1 failed, 1 are not supported, 1 were skipped.",
		"| core | 1 | 0 | 0 | 0 |",
		"| logs | 0 | 1 | 0 | 0 |",
		`| logs | logs | logs \| tails | failed | no a\|b |`,
		"| exec | exec-output | exec | not supported | 501 |",
		"| resize | resize | resize | skipped | resize is not declared |",
		"## logs failed",
		"    and more",
	} {
		if !strings.Contains(b.String(), "\n"+line+"\n") && !strings.HasPrefix(b.String(), line+"\n") {
			t.Errorf("%q is missing in:\n%s", line, &b)
		}
	}
}

func TestJUnit(t *testing.T) {
	var b strings.Builder
	if err := sampleReport().JUnit(&b); err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatalf("%v in:\n%s", err, &b)
	}
	s := got.Suite
	if s.Name != "vk" || s.Tests != 4 || s.Failures != 1 || s.Skipped != 2 || len(s.Cases) != 4 || s.Time != "90.000" {
		t.Errorf("got %+v", s)
	}
	if c := s.Cases[1]; c.Class != "logs" || c.Failure == nil || c.Failure.Message != "no a|b\nand more" || !strings.Contains(c.Failure.Text, "phase Failed") {
		t.Errorf("got %+v", c)
	}
	if c := s.Cases[2]; c.Skipped == nil || c.Skipped.Message != "not supported: 501" || c.Failure != nil {
		t.Errorf("got %+v", c)
	}
}

// What is published says the worst of each capability, in each format.
func TestPublished(t *testing.T) {
	r := sampleReport()
	var text, encoded, badge strings.Builder
	if err := errors.Join(r.Text(&text), r.JSON(&encoded), r.Badge(&badge)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`core +passed +1 +0 +0 +0`, `logs +failed +0 +1 +0 +0`, `exec +not supported +0 +0 +1 +0`, `resize +skipped +0 +0 +0 +1`, `logs failed: no a\|b`} {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(text.String()) {
			t.Errorf("no %q in\n%s", line, &text)
		}
	}
	var got struct {
		Node         string
		Seconds      float64
		Capabilities []struct{ Name, Result string }
		Checks       []struct{ Name, Result, Why, Details string }
	}
	if err := json.Unmarshal([]byte(encoded.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Node != "vk" || got.Seconds != 90 || len(got.Checks) != 4 || got.Checks[1].Result != "failed" || got.Capabilities[0].Name != "core" || got.Capabilities[0].Result != "passed" {
		t.Errorf("got %+v", got)
	}
	if err := xml.Unmarshal([]byte(badge.String()), new(struct{})); err != nil || !strings.Contains(badge.String(), "1 capability failed") {
		t.Errorf("%v: %s", err, &badge)
	}
	for i := range r.Results {
		if r.Results[i].Outcome == Failed {
			r.Results[i].Outcome = Passed
		}
	}
	badge.Reset()
	if err := r.Badge(&badge); err != nil || !strings.Contains(badge.String(), "core + 1 capability") {
		t.Errorf("%v: %s", err, &badge)
	}
}
