//go:build acilive

package aci

import (
	"bytes"
	"cmp"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod in a real subscription, with the variables AZURE_* and ACI_*, and a
// command in another one. It fails without them.
func TestLive(t *testing.T) {
	config := Config{ClusterName: "live-" + rand.String(5)}
	if err := config.Merge(os.Getenv); err != nil {
		t.Fatal(err)
	}
	if err := config.ReadCredentials(os.ReadFile); err != nil {
		t.Fatal(err)
	}
	cluster := grouptest.NewCluster("live")
	p, err := New(cluster.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Close(t, p)
	image := cmp.Or(os.Getenv("ACI_TEST_IMAGE"), "mcr.microsoft.com/azurelinux/busybox:1.36")
	grouptest.Live(t, p, p, cluster, image)

	pod := grouptest.NewPod("exec-" + rand.String(5))
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = image, []string{"sleep", "600"}
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.DeletePod(t.Context(), pod); err != nil {
			t.Errorf("the group of %s is left over: %v", pod.Name, err)
		}
	}()
	grouptest.Eventually(t, "a command prints", func() error {
		c := &client{}
		err := p.RunInContainer(t.Context(), pod.Namespace, pod.Name, "main", []string{"sh", "-c", "echo 'a  b'; echo c >&2"}, c)
		if err == nil && (!bytes.Equal(c.out.Bytes(), []byte("a  b\n")) || c.err.String() != "c\n") {
			t.Errorf("it has printed %q and %q", c.out.String(), c.err.String())
		}
		return err
	})
}
