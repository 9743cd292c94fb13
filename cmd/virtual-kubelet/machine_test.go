//go:build !chosen_providers || provider_machine

package main

import (
	"strings"
	"testing"
)

// What "providers machine" shows are configurations; mistakes of a driver are named with the others.
func TestMachineConfigurations(t *testing.T) {
	t.Parallel()
	var samples []string
	within := false
	for line := range strings.Lines(machineEntry.config) {
		text, is := strings.CutPrefix(line, "  ")
		if is && !within {
			samples = append(samples, "")
		}
		if within = is; is {
			samples[len(samples)-1] += text
		}
	}
	if len(samples) != 2 {
		t.Errorf("there are %d configurations", len(samples))
	}
	for _, sample := range samples {
		if err := machineEntry.check([]byte(sample)); err != nil {
			t.Errorf("%v:\n%s", err, sample)
		}
	}
	err := machineEntry.check([]byte(`{stateDir: /state, bootstrap: {url: "https://10.0.0.5:10271"}, types: [{name: m7i.large, cpu: 1, memory: 1Gi, arguments: {zone: b}}], ec2: {imageID: ami-1, subnet: x}}`))
	for _, part := range []string{"cluster: ", "types[0].arguments.zone: ", "ec2.imageID: ", "ec2.subnets: ", `unknown field "subnet"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
}
