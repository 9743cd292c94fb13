//go:build !chosen_providers || provider_machine

package main

import (
	"strings"
	"testing"
)

// Mistakes of a driver are named with the others.
func TestMachineConfigurations(t *testing.T) {
	t.Parallel()
	err := machineEntry.check([]byte(`{stateDir: /state, bootstrap: {url: "https://10.0.0.5:10271"}, types: [{name: m7i.large, cpu: 1, memory: 1Gi, arguments: {zone: b}}], ec2: {imageID: ami-1, subnet: x}}`))
	for _, part := range []string{"cluster: ", "types[0].arguments.zone: ", "ec2.imageID: ", "ec2.subnets: ", `unknown field "subnet"`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
}
