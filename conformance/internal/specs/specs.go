// Package specs reads the lists of specs: which there are, and which are known
// not to pass, with the reason.
package specs

import (
	"fmt"
	"os"
	"strings"
)

// Names reads a file with a spec's name a line. Lines that begin with # and empty
// lines do not count.
func Names(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the names of specs: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names, nil
}

// Kind says what is known of a spec.
type Kind string

const (
	Fails   Kind = "fails"
	Depends Kind = "fails on some machines"
	LeftOut Kind = "cannot pass, and is left out"
)

// Known is a spec that is known not to pass.
type Known struct {
	Kind   Kind
	Reason string
}

// marks stand before the names of specs.
var marks = map[string]Kind{"? ": Depends, "- ": LeftOut}

// ReadKnown reads a file of specs that are known not to pass, by their names. The
// reason is in the comment above one, or above several without an empty line
// between them. A mark before the name says more: "? " that it depends on the
// machine, "- " that it is of no use to run it.
func ReadKnown(path string) (map[string]Known, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the specs that are known not to pass: %w", err)
	}
	all := map[string]Known{}
	var reason []string
	after := false // the line before was a spec's
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		comment, isComment := strings.CutPrefix(line, "#")
		if line == "" || isComment && after {
			reason = nil
		}
		after = line != "" && !isComment
		switch {
		case isComment:
			reason = append(reason, strings.TrimSpace(comment))
		case line != "":
			known := Known{Kind: Fails, Reason: strings.Join(reason, " ")}
			for mark, kind := range marks {
				if name, ok := strings.CutPrefix(line, mark); ok {
					line, known.Kind = name, kind
				}
			}
			if known.Reason == "" {
				return nil, fmt.Errorf("%s: no reason is given for %q: write it in a comment above", path, line)
			}
			all[line] = known
		}
	}
	return all, nil
}
