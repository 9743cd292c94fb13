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
			b.client.transport = grouptest.Serve(t, ecitest.On(w), w).Transport(t)
			return b, b.options()
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: "CreateContainerGroup", podgroup.ActionList: "DescribeContainerGroupStatus"},
	}.Run(t)
}

// The suite checks what becomes of a node in another place. A region or an account is one.
func TestPlace(t *testing.T) {
	places := map[string]bool{}
	add := func(change func(*Config)) {
		cfg := testConfig("http://eci.test")
		change(&cfg)
		b, err := newBackend(cfg)
		if err != nil {
			t.Fatal(err)
		}
		places[b.options().Place] = true
	}
	add(func(*Config) {})
	add(func(c *Config) { c.Region = "cn-shanghai" })
	add(func(c *Config) { c.SecurityGroup = "sg-of-another-account" })
	if len(places) != 3 {
		t.Errorf("the places of three configurations are %v", places)
	}
	add(func(c *Config) { c.AccessKey, c.VSwitch = "another", "vsw-2" })
	if len(places) != 3 {
		t.Errorf("another access key or vSwitch is another place: %v", places)
	}
}
