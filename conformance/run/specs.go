package main

import (
	"regexp"
	"strings"
)

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

// portOf returns the port at which a spec's pods listen, or expect nobody to, or 0.
// On a node whose pods have one network, such specs run one after the other.
func portOf(name string) int {
	for _, s := range sharedPorts {
		if strings.Contains(name, s.part) {
			return s.port
		}
	}
	return 0
}

// sharedPorts are parts of the names of specs with the ports, the first that fits.
var sharedPorts = []struct {
	part string
	port int
}{
	{"should *not* be restarted with a /healthz http liveness probe", 80},
	{"EmptyDir wrapper volumes should not conflict", 80},
	{"with readiness probe should not be ready before initial delay", 80},
	{"with readiness probe that fails should never be ready", 80},
	{"/healthz http liveness probe", 8080},
	{"redirect http liveness probe", 8080},
	{"tcp:8080 liveness probe", 8080},
	{"GRPC liveness probe", 8080}, // and 5000
	{"monotonically increasing restart count", 8080},
	{"override timeoutGracePeriodSeconds", 8080},
	{"PreStop should call prestop", 8080},
	{"Lifecycle Hook when create a pod with lifecycle hook should", 8080},
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
