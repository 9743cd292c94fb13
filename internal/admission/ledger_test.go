package admission_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/admission"
)

func list(amounts ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		l[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return l
}

// onNode is a Linux node of 4 CPUs, 8 GiB, 3 pods and 2 GPUs.
func onNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{corev1.LabelOSStable: "linux", "zone": "a"}}}
	n.Status.Allocatable = list("cpu", "4", "memory", "8Gi", "pods", "3", "example.com/gpu", "2", "hugepages-2Mi", "0")
	for _, f := range change {
		f(n)
	}
	return n
}

func aPod(uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}}
	p.Spec.NodeName = "vk"
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	for _, f := range change {
		f(p)
	}
	return p
}

func asks(amounts ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list(amounts...) }
}

func hostPort(ip string, number int32, protocol corev1.Protocol) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostIP: ip, HostPort: number, Protocol: protocol})
	}
}

func selects(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{name: value} }
}

func requires(fields bool, key string, op corev1.NodeSelectorOperator, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
		if fields {
			term.MatchExpressions, term.MatchFields = nil, term.MatchExpressions
		}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
		}}
	}
}

func tainted(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "broken", Effect: effect})
	}
}

func TestAdmit(t *testing.T) {
	const notEnough = "Node didn't have enough resource: "
	for name, tc := range map[string]struct {
		node            *corev1.Node
		before          []*corev1.Pod
		pod             *corev1.Pod
		reason, message string
	}{
		"an empty pod": {pod: aPod("p")},
		"what fits":    {pod: aPod("p", asks("cpu", "4", "memory", "8Gi", "example.com/gpu", "2"))},
		"cpu": {
			before: []*corev1.Pod{aPod("a", asks("cpu", "3"))}, pod: aPod("p", asks("cpu", "1500m")),
			reason: "OutOfcpu", message: notEnough + "cpu, requested: 1500, used: 3000, capacity: 4000",
		},
		"memory": {
			pod: aPod("p", asks("memory", "9Gi")), reason: "OutOfmemory",
			message: notEnough + "memory, requested: 9663676416, used: 0, capacity: 8589934592",
		},
		"pods": {
			before: []*corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, pod: aPod("p"),
			reason: "OutOfpods", message: notEnough + "pods, requested: 1, used: 3, capacity: 3",
		},
		"pods come before all else, and cpu before memory": {
			before: []*corev1.Pod{aPod("a"), aPod("b"), aPod("c")}, pod: aPod("p", asks("cpu", "9", "memory", "9Gi"), selects("zone", "b")),
			reason: "OutOfpods", message: notEnough + "pods, requested: 1, used: 3, capacity: 3",
		},
		"an extended resource": {
			before: []*corev1.Pod{aPod("a", asks("example.com/gpu", "1"))}, pod: aPod("p", asks("example.com/gpu", "2")),
			reason: "OutOfexample.com/gpu", message: notEnough + "example.com/gpu, requested: 2, used: 1, capacity: 2",
		},
		"an extended resource that the node does not have is the cluster's": {pod: aPod("p", asks("example.com/license", "2"))},
		"a resource of which the node has none": {
			pod: aPod("p", asks("hugepages-2Mi", "2Mi")), reason: "OutOfhugepages-2Mi",
			message: notEnough + "hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
		},
		"a native resource that the node does not name": {pod: aPod("p", asks("ephemeral-storage", "1Ti"))},
		"a node that says nothing":                      {node: &corev1.Node{}, pod: aPod("p", asks("cpu", "1000"))},
		"a node that has only a capacity": {
			node: onNode(func(n *corev1.Node) { n.Status.Capacity, n.Status.Allocatable = list("cpu", "1"), nil }), pod: aPod("p", asks("cpu", "2")),
			reason: "OutOfcpu", message: notEnough + "cpu, requested: 2000, used: 0, capacity: 1000",
		},
		"a node that shrank below its pods takes one that asks for nothing": {
			before: []*corev1.Pod{aPod("a", asks("cpu", "3"))}, pod: aPod("p"),
			node: onNode(func(n *corev1.Node) { n.Status.Allocatable = list("cpu", "1", "pods", "110") }),
		},
		"init containers count by the greatest, sidecars and overhead are added": {
			pod: aPod("p", asks("cpu", "1"), func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{
					{Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: list("cpu", "1")}},
					{Name: "init", Resources: corev1.ResourceRequirements{Requests: list("cpu", "2900m")}},
				}
				p.Spec.Overhead = list("cpu", "200m")
			}),
			reason: "OutOfcpu", message: notEnough + "cpu, requested: 4100, used: 0, capacity: 4000",
		},
		"what the pod as a whole asks for": {
			pod:    aPod("p", func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "5")} }),
			reason: "OutOfcpu", message: notEnough + "cpu, requested: 5000, used: 0, capacity: 4000",
		},
		"a node selector": {
			pod: aPod("p", selects("zone", "b")), reason: "NodeAffinity",
			message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		"a node selector that matches": {pod: aPod("p", selects("zone", "a"))},
		"node affinity": {
			pod: aPod("p", requires(false, "zone", corev1.NodeSelectorOpNotIn, "a")), reason: "NodeAffinity",
			message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		"the affinity of a DaemonSet's pod": {pod: aPod("p", requires(true, "metadata.name", corev1.NodeSelectorOpIn, "vk"))},
		"the operating system": {
			pod: aPod("p", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), reason: "PodOSNotSupported",
			message: "Failed to admit pod as the OS field doesn't match node OS",
		},
		"the operating system of a node that is not of this machine's": {
			node: onNode(func(n *corev1.Node) { n.Labels = nil; n.Status.NodeInfo.OperatingSystem = "windows" }),
			pod:  aPod("p", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }),
		},
		"an operating system that is not known": {node: &corev1.Node{}, pod: aPod("p", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} })},
		"the label of the operating system": {
			pod: aPod("p", func(p *corev1.Pod) { p.Labels = map[string]string{corev1.LabelOSStable: "windows"} }), reason: "PodOSSelectorNodeLabelDoesNotMatch",
			message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		},
		"a host port": {
			before: []*corev1.Pod{aPod("a", hostPort("", 80, ""))}, pod: aPod("p", hostPort("10.0.0.1", 80, corev1.ProtocolTCP)), reason: "NodePorts",
			message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		"host ports of other addresses": {before: []*corev1.Pod{aPod("a", hostPort("10.0.0.2", 80, ""))}, pod: aPod("p", hostPort("10.0.0.1", 80, ""))},
		"host ports of other protocols": {before: []*corev1.Pod{aPod("a", hostPort("", 80, corev1.ProtocolUDP))}, pod: aPod("p", hostPort("", 80, ""))},
		"host ports of one pod":         {pod: aPod("p", hostPort("", 80, ""), hostPort("", 80, ""))},
		"a taint": {
			node: onNode(tainted(corev1.TaintEffectNoExecute)), pod: aPod("p"), reason: "TaintToleration",
			message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		"a taint that only keeps the scheduler away": {node: onNode(tainted(corev1.TaintEffectNoSchedule)), pod: aPod("p")},
		"a taint that is tolerated for a while": {
			node: onNode(tainted(corev1.TaintEffectNoExecute)),
			pod: aPod("p", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "broken", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ledger admission.Ledger
			ledger.Recount(tc.before, func(*corev1.Pod) bool { return true })
			if tc.node == nil {
				tc.node = onNode()
			}
			got := ledger.Admit(tc.pod, tc.node)
			if got == nil {
				got = &admission.Rejection{}
			}
			if got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %q: %q, want %q: %q", got.Reason, got.Message, tc.reason, tc.message)
			}
			if admitted := tc.reason == ""; ledger.Has("p") != admitted {
				t.Errorf("the ledger has the pod: %v", !admitted)
			}
		})
	}
}

func TestClaims(t *testing.T) {
	if rejection := admission.Claims(aPod("a")); rejection != nil {
		t.Errorf("a pod without claims: %v", rejection)
	}
	for _, pod := range []*corev1.Pod{
		aPod("a", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }),
		aPod("a", func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpu"}
		}),
	} {
		want := admission.Rejection{Reason: "UnexpectedAdmissionError", Message: "the node's provider does not prepare resource claims (gpu): run the pod on a node with a driver for them"}
		if got := admission.Claims(pod); got == nil || *got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// What was admitted stays, also on a node that has less by now, and is not counted
// twice; what is gone makes room; what runs counts, fits or not.
func TestLedger(t *testing.T) {
	var ledger admission.Ledger
	node := onNode()
	a, b, c := aPod("a", asks("cpu", "3")), aPod("b", asks("cpu", "2")), aPod("c", asks("cpu", "9"))
	admit := func(pod *corev1.Pod, want bool) {
		t.Helper()
		if got := ledger.Admit(pod, node) == nil; got != want {
			t.Errorf("pod %s is admitted: %v, want %v", pod.Name, got, want)
		}
	}
	admit(a, true)
	admit(a, true)
	admit(b, false)
	node.Status.Allocatable = list("cpu", "1")
	admit(a, true)

	node = onNode()
	smaller := a.DeepCopy()
	asks("cpu", "1")(smaller)
	ledger.Update(smaller)
	ledger.Update(c) // which was not admitted
	admit(b, true)
	if ledger.Len() != 2 {
		t.Errorf("%d pods are admitted, want 2", ledger.Len())
	}
	ledger.Recount([]*corev1.Pod{b, c, aPod("d")}, func(p *corev1.Pod) bool { return p.UID == "c" })
	for uid, want := range map[types.UID]bool{"a": false, "b": true, "c": true, "d": false} {
		if ledger.Has(uid) != want {
			t.Errorf("pod %s is admitted: %v, want %v", uid, !want, want)
		}
	}
	admit(a, false)
	ledger.Recount(nil, nil)
	admit(a, true)
}

// A pod costs the same for any number of others.
func BenchmarkAdmit(b *testing.B) {
	var ledger admission.Ledger
	node := onNode(func(n *corev1.Node) { n.Status.Allocatable = list("cpu", "1000000") })
	for i := range b.N {
		if ledger.Admit(aPod(fmt.Sprint(i), asks("cpu", "1m")), node) != nil {
			b.Fatal("rejected")
		}
	}
}
