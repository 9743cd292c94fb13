//go:build azurebatchlive

package azurebatch

import (
	"cmp"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod in a real pool, with the variables AZURE_* of the README. It fails
// without. The task is in a job of its own, which stays.
func TestLive(t *testing.T) {
	config := Config{ClusterName: "live-" + rand.String(5), JobID: "virtual-kubelet-live"}
	if err := config.Merge(os.Getenv); err != nil {
		t.Fatal(err)
	}
	cluster := grouptest.NewCluster("live")
	p, err := New(cluster.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Close(t, p)
	grouptest.Live(t, p, p, cluster, cmp.Or(os.Getenv("AZURE_BATCH_TEST_IMAGE"), "docker.io/library/busybox:1.36"))
}
