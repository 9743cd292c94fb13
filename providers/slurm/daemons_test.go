//go:build integration

package slurm

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/test/slurm"
)

// cluster is a real Slurm.
type cluster struct{ *slurm.Cluster }

func startCluster(t *testing.T) *cluster { return &cluster{slurm.Start(t)} }

// config is that of a provider.
func (c *cluster) config(runtime Runtime) Config {
	config := Config{Cluster: "test", Runtime: runtime, Root: filepath.Join(c.Dir, "pods"), Environment: map[string]string{"SLURM_CONF": c.Conf}, Partition: "normal"}
	config.Refresh.Duration = 500 * time.Millisecond
	return config
}
