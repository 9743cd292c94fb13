//go:build conformance

package main

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The pods of the node do what users of Kubernetes expect, on a real control plane.
func TestConformance(t *testing.T) {
	config, err := ReadConfig("config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	providertest.Suite{
		NewProvider:  NewProvider(config),
		Capabilities: []providertest.Capability{providertest.Logs, providertest.Exec, providertest.SurvivesRestart},
		Skip:         map[string]string{"exec-terminal": "acme has no terminals"},
	}.Run(t)
}
