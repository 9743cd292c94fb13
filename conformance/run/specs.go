package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// readNames reads a file with a spec's name a line. Lines that begin with # and
// empty lines do not count.
func readNames(path string) ([]string, error) {
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

// isSlow says whether a spec watches for four minutes that a container is not
// restarted.
func isSlow(name string) bool { return strings.Contains(name, "*not* be restarted") }

// weight says how long a spec takes, compared with the others: probes take a
// minute, most specs less than ten seconds.
func weight(name string) int {
	if strings.Contains(name, "Probing ") {
		return maxBatch
	}
	return 1
}

// isSerial says whether no other spec may run at the same time.
func isSerial(name string) bool { return strings.Contains(name, "[Serial]") }

// focusOf returns the suite's -ginkgo.focus for specs. Ginkgo matches it with
// the suite's name before the spec's.
func focusOf(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "(?:" + strings.Join(quoted, "|") + ")$"
}
