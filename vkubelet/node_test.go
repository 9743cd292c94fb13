package vkubelet

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

func newNodeObject() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
}

func TestNodeRegistersAndRenewsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		fakeapi.React(&client.Fake, "create", "nodes", giveUID)
		leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		template := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "blue"}}}
		template.Spec.LeaseDurationSeconds = ptr.To[int32](80)
		n, err := NewNode(NaiveNodeProvider{}, newNodeObject(), leases, client.CoreV1().Nodes(), WithNodeLease(template))
		if err != nil {
			t.Fatal(err)
		}
		template.Labels["team"] = "red" // it was copied
		start(t, n.Run)
		<-n.Ready()
		synctest.Wait()

		first, err := leases.Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if first.Labels["team"] != "blue" || ptr.Deref(first.Spec.LeaseDurationSeconds, 0) != 80 {
			t.Errorf("the lease does not follow its template: %v", first)
		}
		if len(first.OwnerReferences) != 1 || ptr.Deref(first.Spec.HolderIdentity, "") != "node" {
			t.Errorf("the lease is not the node's: %v", first)
		}
		time.Sleep(25 * time.Second) // a quarter of 80, and some jitter
		synctest.Wait()
		second, err := leases.Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !second.Spec.RenewTime.After(first.Spec.RenewTime.Time) || second.Labels["team"] != "blue" {
			t.Errorf("the lease was not renewed: %v", second)
		}
	})
}

func TestNodeWithoutLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		n, err := NewNode(nil, newNodeObject(), nil, client.CoreV1().Nodes(),
			WithNodeDisableLease(true), WithNodePingInterval(3*time.Second), WithNodeStatusUpdateInterval(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		start(t, n.Run)
		<-n.Ready()
		first := heartbeat(t, client)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if second := heartbeat(t, client); second.Sub(first) < 3*time.Second {
			t.Errorf("the heartbeat went from %v to %v with a ping interval of 3 s", first, second)
		}
		leases, err := client.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(leases.Items) != 0 {
			t.Errorf("there are leases: %v, %v", leases, err)
		}
	})
}

func heartbeat(t *testing.T, client *fake.Clientset) time.Time {
	t.Helper()
	obj, err := client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range obj.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastHeartbeatTime.Time
		}
	}
	t.Fatalf("the node is not ready: %v", obj.Status.Conditions)
	return time.Time{}
}

func TestNewNodeRefuses(t *testing.T) {
	client := fake.NewClientset()
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := func(namespace, name string, seconds int32) NodeOpt {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		l.Spec.LeaseDurationSeconds = &seconds
		return WithNodeLease(l)
	}
	for what, opt := range map[string]NodeOpt{
		"a lease of another name":        lease("", "other", 40),
		"a lease in another namespace":   lease("default", "node", 40),
		"a lease without a duration":     lease("", "", 0),
		"a negative ping interval":       WithNodePingInterval(-1),
		"a negative status interval":     WithNodeStatusUpdateInterval(-1),
		"a lease, but then without name": lease("kube-system", "", 40),
	} {
		if _, err := NewNode(nil, newNodeObject(), leases, client.CoreV1().Nodes(), opt); !errdefs.IsInvalidInput(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := NewNode(nil, newNodeObject(), nil, client.CoreV1().Nodes()); !errdefs.IsInvalidInput(err) {
		t.Errorf("no client for leases: %v", err)
	}
	if _, err := NewNode(nil, nil, leases, client.CoreV1().Nodes()); !errdefs.IsInvalidInput(err) {
		t.Errorf("no node: %v", err)
	}
	if _, err := NewNode(nil, newNodeObject(), leases, client.CoreV1().Nodes(), WithNodeLease(nil), lease("kube-node-lease", "node", 10)); err != nil {
		t.Errorf("a lease as it should be: %v", err)
	}
}
