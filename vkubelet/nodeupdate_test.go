package vkubelet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// giveUID does what the API server does and the fake does not.
func giveUID(action clienttesting.Action) (bool, runtime.Object, error) {
	obj := action.(clienttesting.CreateAction).GetObject().(metav1.Object)
	obj.SetUID("uid")
	return false, nil, nil
}

func TestUpdateNodeLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node", ResourceVersion: "7", UID: "gone"}}
		var err error
		for range 3 { // the first creates it
			if lease, err = UpdateNodeLease(t.Context(), leases, lease); err != nil {
				t.Fatal(err)
			}
			if !lease.Spec.RenewTime.Time.Equal(time.Now()) {
				t.Errorf("renewed at %v, at the time %v", lease.Spec.RenewTime, time.Now())
			}
			time.Sleep(10 * time.Second)
		}
	})
}

func TestUpdateNodeLeaseAfterAConflict(t *testing.T) {
	there := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node", Namespace: corev1.NamespaceNodeLease, ResourceVersion: "9", Labels: map[string]string{"foreign": "yes"}}}
	client := fake.NewClientset(there)
	fakeapi.React(&client.Fake, "update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).ResourceVersion != "9" {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "node", errors.New("too old"))
		}
		return false, nil, nil
	})
	mine := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node", ResourceVersion: "8", Labels: map[string]string{"mine": "yes"}}}
	mine.Spec.HolderIdentity = &mine.Name
	got, err := UpdateNodeLease(t.Context(), client.CoordinationV1().Leases(corev1.NamespaceNodeLease), mine)
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels["foreign"] != "yes" || got.Labels["mine"] != "yes" || got.Spec.HolderIdentity == nil {
		t.Errorf("got %v", got)
	}
	if mine.Spec.RenewTime != nil {
		t.Error("the lease that was given has been changed")
	}
}

func TestUpdateNodeLeaseReportsWhatTheAPISays(t *testing.T) {
	client := fake.NewClientset()
	fakeapi.React(&client.Fake, "*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "node", nil)
	})
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if _, err := UpdateNodeLease(t.Context(), leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node"}}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
	if _, err := UpdateNodeLease(t.Context(), leases, nil); !errdefs.IsInvalidInput(err) {
		t.Errorf("without a lease: %v", err)
	}
}

func TestUpdateNodeStatusKeepsWhatOthersWrote(t *testing.T) {
	there := newNodeObject()
	there.Spec.Unschedulable = true
	there.Status = corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse},
			{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated"},
		},
		VolumesAttached: []corev1.AttachedVolume{{Name: "disk"}},
	}
	client := fake.NewClientset(there)
	mine := newNodeObject()
	mine.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	mine.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"}}
	got, err := UpdateNodeStatus(t.Context(), client.CoreV1().Nodes(), mine)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Spec.Unschedulable || len(got.Status.VolumesAttached) != 1 {
		t.Errorf("what others wrote is gone: %v", got)
	}
	status := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range got.Status.Conditions {
		status[c.Type] = c.Status
	}
	if len(status) != 2 || status[corev1.NodeReady] != corev1.ConditionTrue || status[corev1.NodeNetworkUnavailable] != corev1.ConditionFalse {
		t.Errorf("conditions: %v", got.Status.Conditions)
	}
	if len(got.Status.Addresses) != 2 || got.Status.Addresses[0].Address != "10.0.0.1" || got.Status.Addresses[1].Address != "fd00::1" {
		t.Errorf("addresses: %v", got.Status.Addresses)
	}
}

func TestUpdateNodeStatusOfADeletedNode(t *testing.T) {
	client := fake.NewClientset()
	if _, err := UpdateNodeStatus(t.Context(), client.CoreV1().Nodes(), newNodeObject()); !errdefs.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	if _, err := UpdateNodeStatus(t.Context(), client.CoreV1().Nodes(), nil); !errdefs.IsInvalidInput(err) {
		t.Errorf("without a node: %v", err)
	}
}

func TestPatchNodeStatus(t *testing.T) {
	there := newNodeObject()
	there.Status.Phase = corev1.NodePending
	there.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "old"}}
	client := fake.NewClientset(there)
	next := there.DeepCopy()
	next.Spec.PodCIDR = "10.0.0.0/24" // not the status
	next.Status.Phase = corev1.NodeRunning
	got, patch, err := PatchNodeStatus(client.CoreV1().Nodes(), "node", there, next)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"status":{"phase":"Running"}}`; string(patch) != want {
		t.Errorf("the patch is %s, want %s", patch, want)
	}
	if got.Status.Phase != corev1.NodeRunning || got.Spec.PodCIDR != "" || len(got.Status.Addresses) != 1 {
		t.Errorf("got %v", got)
	}

	if _, _, err := PatchNodeStatus(client.CoreV1().Nodes(), "other", there, next); !errdefs.IsNotFound(err) {
		t.Errorf("a node that does not exist: %v", err)
	}
	if _, _, err := PatchNodeStatus(client.CoreV1().Nodes(), "node", nil, next); !errdefs.IsInvalidInput(err) {
		t.Errorf("without the old node: %v", err)
	}
}

func TestUpdateNodeStatusPassesTheContextOn(t *testing.T) {
	client := fake.NewClientset(newNodeObject())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	seen := &contextNodes{NodeInterface: client.CoreV1().Nodes()}
	_, _ = UpdateNodeStatus(ctx, seen, newNodeObject())
	if seen.patched == nil || seen.patched.Err() == nil {
		t.Error("the patch does not end with the caller's context")
	}
}
