package main

import (
	"strings"
	"testing"
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
