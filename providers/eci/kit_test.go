//go:build integration

package eci_test

import (
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// The fake of ECI runs no commands: only the checks without commands are run.
func TestECI(t *testing.T) {
	t.Parallel()
	api := ecitest.New(200 * time.Millisecond)
	t.Cleanup(api.Close)
	config := eci.Config{
		ClusterName: "providertest", Region: ecitest.Region, AccessKey: ecitest.AccessKey, SecretKey: ecitest.SecretKey,
		SecurityGroup: "sg-1", VSwitch: "vsw-1", Endpoint: api.URL, CacheFor: metav1.Duration{Duration: time.Second},
	}
	providertest.Suite{
		NewProvider: func(init nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := eci.New(init, config)
			if err != nil {
				return nil, nil, err
			}
			return p, p, nil
		},
		Capabilities: []providertest.Capability{
			providertest.Logs, providertest.Exec, providertest.Stats, providertest.Volumes, providertest.Deadlines, providertest.SurvivesRestart,
		},
		ControlPlane: filepath.Join("..", "..", "bin", "controlplane"),
		NodeName:     "providertest-eci",
	}.Run(t)
}
