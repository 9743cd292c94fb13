package eci

import "testing"

func TestStats(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	r.create(t, newPod("b"))
	summary, err := r.GetStatsSummary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(summary.Pods) != 2 || *summary.Pods[0].CPU.UsageNanoCores != 10_000_000 || len(summary.Pods[0].Containers) != 1 ||
		*summary.Node.CPU.UsageNanoCores != 20_000_000 || summary.Node.NodeName != "vk" {
		t.Errorf("the figures are %+v", summary)
	}
	if network := summary.Pods[0].Network; network == nil || network.Name != "eth0" || *network.RxBytes != 3<<20 || len(network.Interfaces) != 2 {
		t.Errorf("the network's figures are %+v", network)
	}
	if _, err := r.GetStatsSummary(t.Context()); err != nil || r.api.Calls("DescribeMultiContainerGroupMetric") != 1 {
		t.Errorf("the figures of two groups take %d calls, %v, want one in a while", r.api.Calls("DescribeMultiContainerGroupMetric"), err)
	}
}

// A group without metrics does not cause those of all to be requested each time; one
// that is being updated has some.
func TestFiguresAreAskedForOnceInAWhile(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	r.create(t, newPod("b"))
	if err := r.api.SetStatus("b", "Updating", "Updating", "it is updated"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		summary, err := r.GetStatsSummary(t.Context())
		if err != nil || len(summary.Pods) != 1 { // the fake has metrics of groups that are Running
			t.Fatalf("there are figures of %d pods: %v", len(summary.Pods), err)
		}
	}
	if calls := r.api.Calls("DescribeMultiContainerGroupMetric"); calls != 1 {
		t.Errorf("the figures of two groups take %d calls", calls)
	}
}
