//go:build slurmlive

package slurm

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod on the site of a configuration file:
//
//	SLURM_LIVE_CONFIG=slurm.yaml SLURM_LIVE_IMAGE=busybox go test -tags slurmlive -run TestLive -v -timeout 1h ./providers/slurm
func TestLive(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("SLURM_LIVE_CONFIG"))
	if err != nil {
		t.Fatalf("SLURM_LIVE_CONFIG has to name a configuration file: %v", err)
	}
	config, err := ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	cluster := grouptest.NewCluster(types.UID(uuid.NewUUID()))
	p, n, err := New(cluster.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { grouptest.Close(t, p) })
	grouptest.Live(t, p, n, cluster, os.Getenv("SLURM_LIVE_IMAGE"))
}
