package main

import "testing"

// Another process has the node if it is in another pod, unless the two elect a leader.
func TestRivalByPod(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		podUID string
		holder string
		want   bool
	}{
		"not in a pod":     {nil, "", "host_boot_space_1_2_that_random", false},
		"the same pod":     {nil, "this", "host_boot_space_1_2_this_random", false},
		"another pod":      {nil, "this", "host_boot_space_1_2_that_random", true},
		"a standby":        {[]string{"--leader-elect"}, "this", "host_boot_space_1_2_that_random", false},
		"another program":  {nil, "this", "something", false},
		"a process no pod": {nil, "this", "host_boot_space_1_2__random", true},
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
		if _, rival := o.describeHolder(c.holder); rival != c.want {
			t.Errorf("%s: rival is %v, want %v", name, rival, c.want)
		}
	}
}
