package kubernetes

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

func list(cpu, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse(pods)}
}

func TestCapacityOfNodes(t *testing.T) {
	home := translate.Home{Cluster: "home", Node: "far", UID: "home-uid"}
	remoteNode := func(name string, ready corev1.ConditionStatus, cordoned bool) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{Unschedulable: cordoned},
			Status:     corev1.NodeStatus{Allocatable: list("4", "10"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	podOn := func(node string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), "example.com/gpu": resource.MustParse("1")}},
		}}}}
	}
	changed := func(name string, change func(*corev1.Node)) *corev1.Node {
		n := remoteNode(name, corev1.ConditionTrue, false)
		n.Labels = map[string]string{"pool": "guests"}
		change(n)
		return n
	}
	tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Value: "x", Effect: effect}} }
	}
	scheduling := &translate.Scheduling{
		NodeSelector: map[string]string{"pool": "guests"}, KeepTolerations: []string{"team/*"},
		Tolerations: []corev1.Toleration{{Key: "guests", Operator: corev1.TolerationOpExists}},
	}
	got := sumNodes([]*corev1.Node{
		changed("label", func(n *corev1.Node) { n.Labels["type"] = "virtual-kubelet" }),
		changed("provider", func(n *corev1.Node) { n.Labels["virtual-kubelet.io/provider"] = "mock" }),
		changed("virtual taint", tainted("virtual-kubelet.io/provider", corev1.TaintEffectNoSchedule)),
		changed("other pool", func(n *corev1.Node) { n.Labels["pool"] = "own" }),
		changed("not tolerated", tainted("gpu", corev1.TaintEffectNoSchedule)),
		changed("not tolerated either", tainted("gpu", corev1.TaintEffectNoExecute)),
		changed("preferred", tainted("gpu", corev1.TaintEffectPreferNoSchedule)),
		changed("tolerated", tainted("guests", corev1.TaintEffectNoSchedule)),
		changed("perhaps tolerated", tainted("team/a", corev1.TaintEffectNoSchedule)),
	}, []*corev1.Pod{podOn("gpu", nil), podOn("label", nil), podOn("tolerated", nil)}, home, scheduling)
	if got.Cpu().String() != "10500m" || got.Pods().Value() != 29 {
		t.Errorf("of nodes that may take pods: got %v, want 10500m and 29 pods", got)
	}
	nodes := []*corev1.Node{remoteNode("a", corev1.ConditionTrue, false), remoteNode("b", corev1.ConditionTrue, false),
		remoteNode("down", corev1.ConditionUnknown, false), remoteNode("cordoned", corev1.ConditionTrue, true)}
	pods := []*corev1.Pod{podOn("a", nil), podOn("a", home.Labels()), podOn("down", nil), podOn("", nil)}
	got = sumNodes(nodes, pods, home, &translate.Scheduling{})
	if got.Cpu().String() != "6500m" || got.Pods().Value() != 19 || len(got) != 3 {
		t.Errorf("got %v, want 6500m and 19 pods", got)
	}
}

func TestCapacityOfQuotas(t *testing.T) {
	quota := func(hard corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) corev1.ResourceQuota {
		return corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}}
	}
	got := leastQuota([]corev1.ResourceQuota{
		quota(corev1.ResourceList{"requests.cpu": resource.MustParse("8"), "pods": resource.MustParse("20"), "limits.cpu": resource.MustParse("1"), "secrets": resource.MustParse("1")}),
		quota(corev1.ResourceList{"cpu": resource.MustParse("6"), "requests.example.com/gpu": resource.MustParse("2")}),
		quota(corev1.ResourceList{"cpu": resource.MustParse("1")}, corev1.ResourceQuotaScopeBestEffort),
	})
	if got.Cpu().Value() != 6 || got.Pods().Value() != 20 || len(got) != 3 {
		t.Errorf("got %v", got)
	}
}

// The capacity changes with the remote nodes and with other pods on them, which are
// watched rather than listed each time.
func TestCapacityFollowsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		r := newRig(t, "capacity: {source: nodes, interval: 1s, nodeSelector: pool=guests}\n", remote)
		var reported corev1.ResourceList
		r.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { reported = n.Status.Allocatable })
		want := func(cpu, pods string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if reported.Cpu().String() != cpu || reported.Pods().String() != pods {
				t.Errorf("the capacity is %v, want %s CPUs and %s pods", reported, cpu, pods)
			}
		}
		want("0", "0") // not the default: there is no node yet
		remoteNode := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"pool": "guests"}},
			Status:     corev1.NodeStatus{Allocatable: list("4", "10"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		if _, err := remote.CoreV1().Nodes().Create(t.Context(), remoteNode, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		want("4", "10")
		foreign := named("foreign")
		foreign.Spec.NodeName = "a"
		foreign.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		if _, err := remote.CoreV1().Pods("shop").Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		want("3", "9")
		r.requests()
		time.Sleep(time.Hour)
		r.wantRequests("an hour in which nothing changes")
	})
}
