package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Another process has the node if it is in another pod, unless the two elect a leader.
func TestRivalByPod(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		podUID string
		holder string
		group  string
		want   bool
	}{
		"not in a pod":              {nil, "", "host_boot_space_1_2_that_random", "", false},
		"the same pod":              {nil, "this", "host_boot_space_1_2_this_random", "", false},
		"another pod":               {nil, "this", "host_boot_space_1_2_that_random", "", true},
		"a standby":                 {[]string{"--leader-elect"}, "this", "host_boot_space_1_2_that_random", "leader kube-system/virtual-kubelet-leader", false},
		"one that elects elsewhere": {[]string{"--leader-elect"}, "this", "host_boot_space_1_2_that_random", "leader other/virtual-kubelet-leader", true},
		"one that elects no leader": {[]string{"--leader-elect"}, "this", "host_boot_space_1_2_that_random", "", true},
		"one that elects, alone":    {nil, "this", "host_boot_space_1_2_that_random", "leader kube-system/virtual-kubelet-leader", true},
		"another program":           {nil, "this", "something", "", false},
		"a process no pod":          {nil, "this", "host_boot_space_1_2__random", "", true},
	} {
		o := doctorOptions{options: &options{}, output: "text"}
		command := newDoctorCommand(func(string) string { return "" })
		o.addFlags(command.PersistentFlags(), func(key string) string { return map[string]string{"VKUBELET_POD_UID": c.podUID}[key] })
		if err := command.PersistentFlags().Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		if _, rival := o.describeHolder(c.holder, c.group); rival != c.want {
			t.Errorf("%s: rival is %v, want %v", name, rival, c.want)
		}
	}
}

// The command that is to be copied is one for a shell.
func TestRightsCommandOfAFile(t *testing.T) {
	for file, want := range map[string]string{"pools.yaml": " --config pools.yaml", "my $pools.yaml": " --config 'my $pools.yaml'", "": " --nodename ''"} {
		rbac := rbacOptions{poolsFile: file}
		if command := rbac.command(); !strings.HasSuffix(command, want) {
			t.Errorf("%q: %s, want %q at its end", file, command, want)
		}
	}
}

// What is wrong in the file of --config is named with its place, as by "config check".
func TestDoctorNamesThePlaceOfAMistake(t *testing.T) {
	noCluster(t)
	for fields, want := range map[string]string{
		"provider: mock\nproviderConfig: {virtual-kubelet: {cpus: 1}}\n":                                                                         `:4: providerConfig: mock config: unknown field "virtual-kubelet.cpus"`,
		"provider: mock\n---\napiVersion: virtual-kubelet.io/v1alpha1\nkind: NodePools\npools:\n- {name: a, count: 1}\n- {name: b, count: -1}\n": ":9: pools[b].count: ",
	} {
		file := writeConfig(t, fields)
		o := new(options)
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.addFlags(flags, func(string) string { return "" })
		if err := errors.Join(flags.Parse([]string{"--config", file}), o.completeAll()); err != nil {
			t.Fatal(err)
		}
		if _, wrong, err := o.configuredNodes(); err != nil || wrong == nil || !strings.HasPrefix(wrong.Error(), file+want) {
			t.Errorf("got %v, %v; want %s%s", wrong, err, file, want)
		}
	}
}
