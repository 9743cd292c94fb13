package nodecheck

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"text/tabwriter"
	"time"
)

// capabilityResult is what the checks of a capability have come to.
type capabilityResult struct {
	Name         Capability `json:"name"`
	Result       Outcome    `json:"result"`
	Passed       int        `json:"passed"`
	Failed       int        `json:"failed"`
	NotSupported int        `json:"notSupported"`
	Skipped      int        `json:"skipped"`
}

// capabilities are the results of all capabilities, the core first. One has passed if a check
// of it has, and none failed or is not supported.
func (r *Report) capabilities() (results []capabilityResult) {
	for _, capability := range append([]Capability{Core}, Capabilities()...) {
		c := r.count(func(check Check) bool { return check.Capability() == capability })
		result := capabilityResult{Name: capability, Result: Skipped, Passed: c[Passed], Failed: c[Failed], NotSupported: c[NotSupported], Skipped: c[Skipped]}
		for _, outcome := range []Outcome{Passed, NotSupported, Failed} { // the worst counts
			if c[outcome] > 0 {
				result.Result = outcome
			}
		}
		results = append(results, result)
	}
	return results
}

// Text writes the report as tables for a terminal.
func (r *Report) Text(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Node %s, kubelet version %s, %s\n\nCAPABILITY\tRESULT\tPASSED\tFAILED\tNOT SUPPORTED\tSKIPPED\n", r.Node, r.Version, r.Began.UTC().Format(time.RFC3339))
	for _, c := range r.capabilities() {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\n", c.Name, c.Result, c.Passed, c.Failed, c.NotSupported, c.Skipped)
	}
	for _, result := range r.Results {
		if result.Outcome == Failed {
			fmt.Fprintf(w, "\n%s failed: %s\n", result.Check.Name, result.Why)
		}
	}
	return w.Flush()
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	type check struct {
		Capability Capability `json:"capability"`
		Name       string     `json:"name"`
		Title      string     `json:"title"`
		Result     Outcome    `json:"result"`
		Seconds    float64    `json:"seconds"`
		Why        string     `json:"why,omitempty"`
		Details    string     `json:"details,omitempty"`
	}
	report := struct {
		Node           string             `json:"node"`
		KubeletVersion string             `json:"kubeletVersion"`
		Began          time.Time          `json:"began"`
		Seconds        float64            `json:"seconds"`
		Capabilities   []capabilityResult `json:"capabilities"`
		Checks         []check            `json:"checks"`
	}{r.Node, r.Version, r.Began.UTC(), r.Took.Seconds(), r.capabilities(), []check{}}
	for _, result := range r.Results {
		report.Checks = append(report.Checks, check{result.Check.Capability(), result.Check.Name, result.Check.Title, result.Outcome, result.Took.Seconds(), result.Why, result.Details})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

const (
	badgeLabel  = "node conformance"
	badgeLetter = 7 // pixels, of a letter on the average
	badgeMargin = 8
)

func capabilities(n int) string {
	if n == 1 {
		return "1 capability"
	}
	return fmt.Sprintf("%d capabilities", n)
}

// Badge writes a picture (SVG) that says how many capabilities have passed, for a README.
func (r *Report) Badge(w io.Writer) error {
	passed, failed, core := 0, 0, false
	for _, c := range r.capabilities() {
		switch {
		case c.Result == Failed:
			failed++
		case c.Result == Passed && c.Name == Core:
			core = true
		case c.Result == Passed:
			passed++
		}
	}
	text, color := "core + "+capabilities(passed), "#2e7d32"
	switch {
	case failed > 0:
		text, color = capabilities(failed)+" failed", "#c62828"
	case !core:
		text, color = "core did not pass", "#c62828"
	}
	left, right := 2*badgeMargin+badgeLetter*len(badgeLabel), 2*badgeMargin+badgeLetter*len(text)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="20" role="img" aria-label="%s">`+
		`<rect width="%d" height="20" fill="#555"/><rect x="%d" width="%d" height="20" fill="%s"/>`+
		`<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle"><text x="%d" y="14">%s</text><text x="%d" y="14">%s</text></g></svg>`+"\n",
		left+right, html.EscapeString(badgeLabel+": "+text), left, left, right, color, left/2, badgeLabel, left+right/2, text)
	return err
}
