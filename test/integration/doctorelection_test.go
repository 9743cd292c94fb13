//go:build integration

package integration

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// What the doctor finds about the processes that share nodes, and about clouds.

// A node whose process runs without --leader-elect, and then one whose leader has gone.
func TestDoctorFindsThatNobodyLeads(t *testing.T) {
	n := startNode(t)
	args := append(asAdmin(n), "--service-account", "", "--leader-elect", "--leader-elect-namespace", accountNamespace)
	wantBad(t, eventuallyBad(t, "election", args...), "election", "failed", "no process has led yet: there is no lease "+n.name+"-leader in namespace "+accountNamespace, "--leader-elect")

	leases := client.CoordinationV1().Leases(accountNamespace)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.name + "-leader"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("somebody"), LeaseDurationSeconds: ptr.To[int32](1), RenewTime: ptr.To(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := leases.Delete(context.Background(), lease.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	wantBad(t, eventuallyBad(t, "election", args...), "election", "failed", "no process leads", "its log says why it does not lead")
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To[int32](3600), ptr.To(metav1.NowMicro())
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyBad(t, "", args...)
}

// A configuration with another number of shards than the process that runs.
func TestDoctorFindsAnotherNumberOfShards(t *testing.T) {
	s := newSharers(t, 2, "--nodes", "2", "--shards", "2")
	s.start()
	args := []string{"--kubeconfig", cluster.Kubeconfig(), "--nodename", s.name, "--provider", "mock", "--provider-config", s.config,
		"--nodes", "2", "--leader-elect-namespace", accountNamespace}
	eventuallyBad(t, "", append(args, "--shards", "2")...)
	wantBad(t, eventuallyBad(t, "election", append(args, "--shards", "1")...), "election", "failed", "go by 2 shards, and this configuration by 1", "one value of --shards")
}

// What a cloud controller records when it has deleted a Node.
func TestDoctorFindsThatACloudHasDeletedTheNode(t *testing.T) {
	n := startNode(t)
	events := client.CoreV1().Events(metav1.NamespaceDefault)
	event, err := events.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: n.name + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: n.name},
		Reason:         "DeletingNode", Type: corev1.EventTypeNormal, Message: "it does not exist in the cloud provider",
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Source: corev1.EventSource{Component: "cloud-node-lifecycle-controller"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantBad(t, eventuallyBad(t, "node", asAdmin(n)...), "node", "warning", "cloud controller has deleted it", "--managed-cluster")
	if err := events.Delete(t.Context(), event.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyBad(t, "", asAdmin(n)...)
}

// A node without the marks for a managed cluster, beside a machine of one.
func TestDoctorFindsMachinesOfACloud(t *testing.T) {
	n := startNode(t)
	machine, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a-machine-of-a-cloud"}, Spec: corev1.NodeSpec{ProviderID: "gce://project/zone/machine"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.CoreV1().Nodes().Delete(context.Background(), machine.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	wantBad(t, eventuallyBad(t, "node", asAdmin(n)...), "node", "warning", "without a provider ID, beside machines of gke", "--managed-cluster gke")
}
