//go:build integration || nomadlive

package nomad

import (
	"path/filepath"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// lingers runs the script of a container, which ends two seconds after it: Nomad's driver for
// Docker stops to read the log of a container as soon as that has ended, and can lose what comes
// last. It is no other process, so that signals reach the script.
const lingers = `trap 'sleep 2' EXIT; script=$0; [ $# = 0 ] || shift; eval "$script"`

// kit is the conformance kit for a Nomad that runs containers.
func kit(cfg Config, image string) providertest.Suite {
	cfg.ClusterName = "providertest"
	cfg.UnsafeSubPaths = true // volume-subpath mounts a volume whole, too
	return providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return New(init, cfg)
		},
		Capabilities: []providertest.Capability{
			providertest.Commands, providertest.Logs, providertest.Exec, providertest.Stats, providertest.Volumes, providertest.Isolation, providertest.Tokens,
			providertest.InitContainers, providertest.Sidecars, providertest.Restarts, providertest.Deadlines, providertest.SurvivesRestart,
		},
		Skip: map[string]string{
			"logs-content":  "Nomad does not record the times of lines",
			"logs-since":    "Nomad does not record the times of lines",
			"logs-previous": "Nomad keeps one log of all runs of a container",
		},
		Image:        image,
		Shell:        []string{"sh", "-c", lingers},
		Timeout:      5 * time.Minute, // a busy machine is no failure
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-nomad",
	}
}
