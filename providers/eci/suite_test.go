package eci

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
)

func TestSuite(t *testing.T) {
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			b, err := newBackend(testConfig("http://eci.test"))
			if err != nil {
				t.Fatal(err)
			}
			b.client.transport = grouptest.Serve(t, ecitest.On(w)).Transport(t)
			return b, b.options()
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: "CreateContainerGroup", podgroup.ActionList: "DescribeContainerGroupStatus"},
	}.Run(t)
}
