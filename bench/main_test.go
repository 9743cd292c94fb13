package main

import (
	"reflect"
	"testing"
)

func TestParseAgent(t *testing.T) {
	got, err := parseAgent("sim=bin/sim --node NODE --kubeconfig=KUBECONFIG")
	if want := (agent{name: "sim", command: []string{"bin/sim", "--node", "NODE", "--kubeconfig=KUBECONFIG"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "sim", "sim=", "=bin/sim"} {
		if _, err := parseAgent(text); err == nil {
			t.Errorf("%q is an agent", text)
		}
	}
}
