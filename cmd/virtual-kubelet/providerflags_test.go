package main

import (
	"strings"
	"testing"
)

// A mistake in the flags about the log is named, and does not mean the default.
func TestProviderFlagsOfTheLog(t *testing.T) {
	for want, args := range map[string][]string{
		`--log-level is "verbose"`: {"agent", "--bootstrap", "x", "--log-level", "verbose"},
		`--log-format is "xml"`:    {"interlink-plugin", "--provider", "mock", "--log-format", "xml"},
	} {
		command := newRootCommand(func(string) string { return "" })
		command.SetArgs(args)
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
