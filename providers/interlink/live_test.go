//go:build interlinklive

package interlink

import (
	"cmp"
	"os"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod by a real interLink API server, with the configuration file that
// INTERLINK_TEST_CONFIG names. It fails without.
func TestLive(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("INTERLINK_TEST_CONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	cluster := grouptest.NewCluster("live")
	p, n, err := New(cluster.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { grouptest.Close(t, p) })
	pod := grouptest.Live(t, p, n, cluster, cmp.Or(os.Getenv("INTERLINK_TEST_IMAGE"), "docker://busybox:1.36"))
	if id := pod.Annotations[AnnotationJobID]; id == "" {
		t.Error("the plugin gives no ID of the job")
	}
}
