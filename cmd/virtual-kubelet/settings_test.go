package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Every flag has a field in the file, or a reason why not; and every field a flag or an
// environment variable. The fields of a group are together.
func TestSettingsAreComplete(t *testing.T) {
	known, fields := map[string]bool{"help": true}, map[string]bool{"": false}
	var ended, groups []string
	for _, s := range new(options).newSettings().Settings {
		name := s.Flag + s.Env
		if s.Flag != "" {
			known[s.Flag] = true
		}
		if (s.Field == "") == (s.OnlyFlag == "") {
			t.Errorf("%s has to have a field, or a reason for none", name)
		}
		if name == "" || s.Value == nil || s.Usage == "" || fields[s.Field] {
			t.Errorf("%+v has no flag, no variable, no value, no description, or the field of another", s)
		}
		fields[s.Field] = s.Field != ""
		parts := strings.Split(s.Field, ".")
		for len(groups) > 0 && (len(parts)-1 < len(groups) || !slices.Equal(parts[:len(groups)], groups)) {
			ended, groups = append(ended, strings.Join(groups, ".")), groups[:len(groups)-1]
		}
		groups = slices.Clone(parts[:len(parts)-1])
		if slices.Contains(ended, strings.Join(groups, ".")) && len(groups) > 0 {
			t.Errorf("%s is not beside the others of its group", s.Field)
		}
	}
	newRootCommand(func(string) string { return "" }).LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !known[f.Name] {
			t.Errorf("--%s is no setting: add it to the table in settings.go", f.Name)
		}
	})
}

// writeConfig returns the path of a file with a configuration.
func writeConfig(t *testing.T, fields string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: virtual-kubelet.io/v1alpha1\nkind: VirtualKubeletConfiguration\n"+fields), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What "config default" prints can be the configuration, and then all is as without one.
func TestDefaultConfiguration(t *testing.T) {
	noCluster(t)
	status, text, stderr := execute(t, "config", "default")
	if status != 0 {
		t.Fatal(stderr)
	}
	_, fields, _ := strings.Cut(text, "kind: VirtualKubeletConfiguration\n")
	with, without := parsed(t, "--provider", "mock", "--config", writeConfig(t, fields)).settings.Values(), parsed(t, "--provider", "mock").settings.Values()
	if !maps.Equal(with, without) {
		t.Errorf("got %v, want %v", with, without)
	}
}

// All mistakes of a file are named at once, with their lines; and a process does not start
// with one.
func TestConfigCheck(t *testing.T) {
	noCluster(t)
	file := writeConfig(t, `provider: mock
providerConfig: {other: {cpu: much}}
node:
  nmae: x
  name: Not_A_Name
kubeletAPI: {port: 70000, portPerNode: true}
leaderElection: {leaderElect: true}
---
apiVersion: virtual-kubelet.io/v1alpha1
kind: NodePools
pools:
- name: a
  count: -1
- {name: b, kount: 1}
`)
	status, stdout, stderr := execute(t, "config", "check", file)
	if status != exitUsage || !strings.Contains(stderr, "mistakes") {
		t.Errorf("status %d, %s", status, stderr)
	}
	want := []string{"6: node.nmae: unknown field", "7: node.name: it is", "8: kubeletAPI.port: it is 70000", "9: leaderElection.leaderElect is for one node",
		"15: pools[a].count: ", "14: pools[a].providerConfig: ", `16: pools[b]: unknown field "kount"`, "16: pools[b].count: ", "16: pools[b].providerConfig: "}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), stdout)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, file+":"+want[i]) {
			t.Errorf("%s\nis not about %s", line, want[i])
		}
	}
	if status, _, stderr := execute(t, "--config", file); status != exitUsage || !strings.Contains(stderr, file+":6: node.nmae") {
		t.Errorf("status %d: %s", status, stderr)
	}
	misspelled := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(misspelled, []byte("kind: VirtualKubeletConfig\napiVersion: virtual-kubelet.io/v1alpha1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{writeConfig(t, "provider: mock\nnode: {count: 2}\n")}, 0, "no mistakes"},
		{[]string{writeConfig(t, "{}")}, exitUsage, "this is no YAML"},
		{[]string{writeConfig(t, "node: {name: a}\n")}, exitUsage, "provider: it is missing"},
		{[]string{writeConfig(t, "node: {name: a}\n"), "--provider", "mock"}, 0, "no mistakes"},
		{[]string{writeConfig(t, "provider: mock\nproviderConfig: missing.yaml\n")}, exitUsage, ":4: providerConfig: "},
		{[]string{misspelled}, exitUsage, misspelled + `:1: kind: Unsupported value: "VirtualKubeletConfig": supported values: "NodePools", "VirtualKubeletConfiguration"`},
		{[]string{"/nonexistent"}, exitUsage, "cannot be read"},
		{nil, exitUsage, ""},
		{[]string{"../../deploy/nodepools.yaml"}, 0, "no mistakes"},
	} {
		if status, stdout, stderr := execute(t, append([]string{"config", "check"}, c.args...)...); status != c.status || !strings.Contains(stdout, c.says) {
			t.Errorf("%v: status %d, %s%s", c.args, status, stdout, stderr)
		}
	}
}

// Flags go before variables, these before the file; and the view has where each is from.
func TestConfigView(t *testing.T) {
	noCluster(t)
	t.Setenv("KUBELET_PORT", "1234")
	file := writeConfig(t, "provider: mock\nproviderConfig: {a: {cpu: \"7\"}}\nnode: {name: a, taint: {value: b}}\nkubeletAPI: {port: 1, address: 192.0.2.1}\n")
	status, stdout, stderr := execute(t, "config", "view", "--config", file, "--listen-address", "192.0.2.2")
	if status != 0 {
		t.Fatal(stderr)
	}
	for _, want := range []string{
		`providerConfig: "[hidden]" # ` + file + ":4", "  name: a # " + file + ":5", "    value: b # " + file + ":5", "  port: 1234 # environment variable KUBELET_PORT",
		"  address: 192.0.2.2 # flag --listen-address", "  os: linux # default",
	} {
		if !strings.Contains(stdout, want+"\n") {
			t.Errorf("it lacks %s:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, `"7"`) {
		t.Error("it has the provider's configuration")
	}
}

// The configuration of the provider is that of the one node, and of pools without one.
func TestProviderConfigInTheFile(t *testing.T) {
	noCluster(t)
	const fields = "provider: mock\nproviderConfig: {a-0: {cpu: \"7\"}}\n"
	if config, err := parsed(t, "--config", writeConfig(t, fields)).configOfProvider(); err != nil || !strings.Contains(string(config), `cpu: "7"`) {
		t.Errorf("got %s, %v", config, err)
	}
	o := parsed(t, "--config", writeConfig(t, fields+"---\napiVersion: virtual-kubelet.io/v1alpha1\nkind: NodePools\npools: [{name: a, count: 1}]\n"))
	wanted, err := newPoolFile(o).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(wanted.Nodes) != 1 || wanted.Nodes[0].Name != "a-0" || !strings.Contains(wanted.Nodes[0].ProviderConfig, `cpu: "7"`) {
		t.Errorf("got %+v", wanted.Nodes)
	}
}

// print-rbac prints the rights that the configuration needs.
func TestRightsOfAConfiguration(t *testing.T) {
	noCluster(t)
	file := writeConfig(t, "provider: cri\nnode: {name: a}\npods: {namespace: b}\nleaderElection: {leaderElect: true, resourceNamespace: c}\n")
	_, got, stderr := execute(t, "config", "print-rbac", "--config", file)
	_, flags, _ := execute(t, "config", "print-rbac", "--provider", "cri", "--nodename", "a", "--namespace", "b", "--leader-elect", "--leader-elect-namespace", "c")
	if got != flags || got == "" {
		t.Errorf("got\n%s%s\nwant\n%s", got, stderr, flags)
	}
	_, got, _ = execute(t, "config", "print-rbac", "--config", file, "--nodename", "d")
	if !strings.Contains(got, "virtual-kubelet-d") {
		t.Errorf("the flag does not go before the file:\n%s", got)
	}
}
