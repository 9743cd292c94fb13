package aci

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci/acitest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // lists of 1000 groups are decoded again and again: a third less time
	goleak.VerifyTestMain(m)
}

// testConfig has a subnet, since a group without ports has no address elsewhere.
func testConfig() Config {
	return Config{
		SubscriptionID: acitest.Subscription, ResourceGroup: acitest.ResourceGroup, Region: acitest.Region, ClusterName: "home",
		VNetName: "net", SubnetName: "groups", KubeDNSIP: "10.0.0.10",
	}
}

func connect(s *acitest.Server) connection {
	return connection{transport: s, credential: acitest.Credential()}
}

func TestSuite(t *testing.T) {
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			b, err := newBackend(testConfig(), connect(acitest.New(w)))
			if err != nil {
				t.Fatal(err)
			}
			return b, b.options()
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: acitest.ActionCreate, podgroup.ActionList: acitest.ActionList},
		Budget:  2100, // what Azure Resource Manager allows: 1500 reads and 600 writes a minute
		Skip: map[string]string{
			"an unchanged node costs one list a round": "lists have no states: groups are read one by one, within readsPerMinute (TestCalls)",
		},
	}.Run(t)
}
