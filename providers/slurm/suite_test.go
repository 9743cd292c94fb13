package slurm

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/slurmtest"
)

func TestSuite(t *testing.T) {
	for _, runtime := range []Runtime{RuntimePodman, RuntimeApptainer, RuntimeEnroot} {
		t.Run(string(runtime), func(t *testing.T) {
			grouptest.Suite{
				New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
					c := Config{Cluster: "test", Runtime: runtime}
					if err := c.complete(); err != nil {
						t.Fatal(err)
					}
					b := newBackend(c, slurmtest.Fake{World: w})
					return b, b.options()
				},
				Actions: map[podgroup.Action]string{podgroup.ActionCreate: slurmtest.ActionSubmit, podgroup.ActionList: slurmtest.ActionList},
			}.Run(t)
		})
	}
}
