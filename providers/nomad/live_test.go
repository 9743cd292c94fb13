//go:build nomadlive

package nomad

import (
	"os"
	"testing"
)

// On the Nomad of NOMAD_ADDR and the other variables, with the image of NOMAD_TEST_IMAGE if it
// is set. The network is the host's: pods then have an address of their machine. That has to
// be this machine for the check pod-runs to pass.
func TestLive(t *testing.T) {
	cfg := Config{Network: networkHost}
	if err := cfg.Merge(os.Getenv); err != nil {
		t.Fatal(err)
	}
	kit(cfg, os.Getenv("NOMAD_TEST_IMAGE")).Run(t)
}
