//go:build !chosen_providers

package main

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

// What docs and deploy have of the configuration is what this binary makes of it.
func TestPublishedConfiguration(t *testing.T) {
	table := new(options).newSettings()
	schema, err := table.Schema()
	if err != nil {
		t.Fatal(err)
	}
	compareWithPage(t, "../../docs/configuration.schema.json", func([]byte) []byte { return append(schema, '\n') })
	compareWithPage(t, "../../docs/configuration.md", func(page []byte) []byte {
		const begin, end = "<!-- settings -->\n", "<!-- end settings -->\n"
		before, rest, ok := bytes.Cut(page, []byte(begin))
		_, after, ended := bytes.Cut(rest, []byte(end))
		if !ok || !ended {
			t.Fatalf("docs/configuration.md lacks the lines %q and %q", begin, end)
		}
		return slices.Concat(before, []byte(begin), table.Markdown(), []byte(end), after)
	})
	sample, err := os.ReadFile("../../deploy/configuration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, sample) {
		t.Error("docs/configuration.md does not show deploy/configuration.yaml as it is")
	}
	_, changes, _ := bytes.Cut(page, []byte("## Changes while it runs"))
	changes, _, _ = bytes.Cut(changes, []byte("\n## "))
	for _, s := range table.Settings {
		if s.Reloaded != bytes.Contains(changes, []byte("`"+s.Field+"`")) && s.Field != "providerConfig" {
			t.Errorf("docs/configuration.md says that %s needs a restart, or that it does not", s.Field)
		}
	}
	noCluster(t)
	if status, stdout, _ := execute(t, "config", "check", "../../deploy/configuration.yaml"); status != 0 {
		t.Error(stdout)
	}
	if status, stdout, _ := execute(t, "config", "schema"); status != 0 || stdout != string(schema)+"\n" {
		t.Errorf("status %d, and another schema", status)
	}
}
