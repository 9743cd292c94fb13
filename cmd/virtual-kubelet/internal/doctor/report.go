package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteText writes a line for each result, and below it how to fix what is wrong.
func WriteText(w io.Writer, results []Result) error {
	width := 0
	for _, r := range results {
		width = max(width, len(r.Check))
	}
	var text strings.Builder
	last := ""
	for _, r := range results {
		if r.Node != last {
			fmt.Fprintf(&text, "\nNode %s\n", r.Node)
			last = r.Node
		}
		message := r.Message
		if r.Status == NotChecked {
			message = "because " + message
		}
		fmt.Fprintf(&text, "%-11s  %-*s  %s\n", r.Status, width, r.Check, message)
		if r.Fix != "" {
			fmt.Fprintf(&text, "%*s  fix: %s\n", 11+2+width, "", r.Fix)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// WriteJSON writes an object with the results.
func WriteJSON(w io.Writer, results []Result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		Checks []Result `json:"checks"`
	}{results})
}

// FailedChecks returns the names of the checks that failed, with their nodes.
func FailedChecks(results []Result) (names []string) {
	for _, r := range results {
		if r.Status == Failed {
			name := r.Check
			if r.Node != "" {
				name += " of " + r.Node
			}
			names = append(names, name)
		}
	}
	return names
}
