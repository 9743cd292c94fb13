package deregister_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/deregister"
	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/doctor"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid of " + name), ResourceVersion: "7"}
}

func nodeOf(name, provider string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: meta("", name)}
	if provider != "" {
		n.Labels = map[string]string{node.LabelProvider: provider}
		n.Annotations = map[string]string{"virtual-kubelet.io/owned": `{"labels": ["` + node.LabelProvider + `"]}`}
	}
	return n
}

// leaseOf returns a lease that was renewed so long ago.
func leaseOf(namespace, name, holder string, age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: meta(namespace, name),
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-age)))},
	}
}

func nodeLease(name string, age time.Duration) *coordinationv1.Lease {
	lease := leaseOf(corev1.NamespaceNodeLease, name, name, age)
	lease.Annotations = map[string]string{"virtual-kubelet.io/holder": "a_b_c_d_e_f_g"}
	return lease
}

func requestOf(t *testing.T, name, node, user, signer string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", name), Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, Username: user}}
}

func podOn(node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta("ns", "pod"), Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
}

// deleted returns what was asked to be deleted, and fails the test if that was not as seen.
func deleted(t *testing.T, client *fake.Clientset) (names []string) {
	t.Helper()
	for _, action := range client.Actions() {
		asked, ok := action.(clienttesting.DeleteActionImpl)
		if !ok {
			if verb := action.GetVerb(); verb != "get" && verb != "list" {
				t.Errorf("it does %s %s", verb, action.GetResource().Resource)
			}
			continue
		}
		if p := asked.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != types.UID("uid of "+asked.Name) || p.ResourceVersion == nil || *p.ResourceVersion != "7" {
			t.Errorf("%s is deleted regardless of what it is", asked.Name)
		}
		names = append(names, asked.Name)
	}
	return names
}

func config(client *fake.Clientset) deregister.Config {
	return deregister.Config{Client: client, Nodes: []doctor.Node{{Name: "vk", Provider: "mock"}}}
}

func find(t *testing.T, cfg deregister.Config) *deregister.Plan {
	t.Helper()
	plan, err := deregister.Find(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

const (
	serving = certificatesv1.KubeletServingSignerName
	joining = certificatesv1.KubeAPIServerClientKubeletSignerName
)

func TestRemovesWhatIsTheNodesAndNothingElse(t *testing.T) {
	client := fake.NewClientset(
		nodeOf("vk", "mock"), nodeLease("vk", time.Hour),
		requestOf(t, "own", "vk", "system:node:vk", serving),
		requestOf(t, "first", "vk", "system:bootstrap:abcdef", joining),
		requestOf(t, "account", "vk", "system:serviceaccount:a:b", serving),
		requestOf(t, "foreign", "vk", "mallory", serving),
		requestOf(t, "signer", "vk", "system:node:vk", "example.com/signer"),
		requestOf(t, "other", "vk-2", "system:node:vk-2", serving),
		leaseOf("kube-system", "vk-leader", "host_1", time.Hour), leaseOf("kube-system", "vk-2-leader", "host_2", time.Hour),
		nodeOf("vk-2", "mock"), nodeLease("vk-2", 0), podOn("vk-2", corev1.PodRunning),
	)
	cfg := config(client)
	cfg.ServiceAccount = "a/b"
	cfg.Elections = doctor.Elections{Namespace: "kube-system", Leader: "vk-leader"}
	plan := find(t, cfg)
	if names := deleted(t, client); len(names) > 0 || len(plan.Dangers) > 0 || len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "foreign") {
		t.Errorf("deletes %v with %+v", names, plan)
	}
	var reported []string
	if err := plan.Remove(t.Context(), cfg, func(o deregister.Object) { reported = append(reported, o.String()) }); err != nil {
		t.Fatal(err)
	}
	names := deleted(t, client)
	want := []string{"vk", "account", "first", "own", "vk", "vk-leader"}
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		t.Errorf("deletes %v, want %v", names, want)
	}
	if len(reported) != len(want) || reported[0] != "Lease kube-node-lease/vk" || !slices.Contains(reported, "Node vk") {
		t.Errorf("reports %q", reported)
	}
	// There is nothing left to do.
	if again := find(t, cfg); len(again.Objects)+len(again.Dangers) > 0 {
		t.Errorf("then there is %+v", again)
	}
}

// While something may go on nothing is removed, but by force.
func TestDangers(t *testing.T) {
	ready := nodeOf("vk", "mock")
	ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	released := nodeLease("vk", time.Second)
	released.Annotations = nil
	behind := nodeLease("vk", time.Hour) // by a clock that is wrong
	behind.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)}}
	member := leaseOf("kube-system", "vk-member-1", "host_1", time.Second)
	member.Labels = map[string]string{"virtual-kubelet.io/shards": "vk"}
	for name, c := range map[string]struct {
		objects   []runtime.Object
		elections doctor.Elections
		danger    string
	}{
		"a process":                     {[]runtime.Object{ready, nodeLease("vk", time.Second)}, doctor.Elections{}, "a process renews it"},
		"a process whose clock is late": {[]runtime.Object{ready, behind}, doctor.Elections{}, "a process renews it"},
		"one that has just ended":       {[]runtime.Object{ready, released}, doctor.Elections{}, "wait until it has run out"},
		"one without a lease":           {[]runtime.Object{ready}, doctor.Elections{}, "has no lease"},
		"one without a Node":            {[]runtime.Object{nodeLease("vk", time.Second)}, doctor.Elections{}, "a process renews it"},
		"pods":                          {[]runtime.Object{ready, nodeLease("vk", time.Hour), podOn("vk", corev1.PodRunning)}, doctor.Elections{}, "1 pods are bound to node vk, ns/pod among them"},
		"a leader": {[]runtime.Object{ready, nodeLease("vk", time.Hour), leaseOf("kube-system", "vk-leader", "host_1", time.Second)},
			doctor.Elections{Namespace: "kube-system", Leader: "vk-leader"}, "host_1 renewed the lease kube-system/vk-leader"},
		"a process with shards": {[]runtime.Object{ready, nodeLease("vk", time.Hour), member},
			doctor.Elections{Namespace: "kube-system", Name: "vk", Shards: 1}, "host_1 renewed the lease kube-system/vk-member-1"},
	} {
		client := fake.NewClientset(c.objects...)
		cfg := config(client)
		cfg.Elections = c.elections
		plan := find(t, cfg)
		if len(plan.Dangers) != 1 || !strings.Contains(plan.Dangers[0], c.danger) {
			t.Errorf("%s: %q, want %q", name, plan.Dangers, c.danger)
		}
		removed := 0
		count := func(deregister.Object) { removed++ }
		if err := plan.Remove(t.Context(), cfg, count); !errors.Is(err, deregister.ErrRefused) || len(deleted(t, client)) > 0 {
			t.Errorf("%s: %v", name, err)
		}
		cfg.Force = true
		if err := plan.Remove(t.Context(), cfg, count); err != nil || removed != len(plan.Objects) || removed == 0 {
			t.Errorf("%s, by force: %v, %d of %v", name, err, removed, plan.Objects)
		}
	}
	done := fake.NewClientset(ready, nodeLease("vk", time.Hour), podOn("vk", corev1.PodSucceeded))
	if plan := find(t, config(done)); len(plan.Dangers) > 0 {
		t.Errorf("a pod that has ended: %q", plan.Dangers)
	}
}

// What is somebody else's is left alone, also by force.
func TestForeignNodes(t *testing.T) {
	labelled := nodeOf("vk", "mock") // by somebody
	labelled.Annotations = nil
	for name, object := range map[string]*corev1.Node{"a kubelet's": nodeOf("vk", ""), "a labelled one": labelled, "another provider's": nodeOf("vk", "aci")} {
		client := fake.NewClientset(object, leaseOf(corev1.NamespaceNodeLease, "vk", "vk", time.Hour))
		cfg := config(client)
		cfg.Force = true
		if plan, err := deregister.Find(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "left alone") {
			t.Errorf("%s: %v, %+v", name, err, plan)
		}
	}
	for name, lease := range map[string]*coordinationv1.Lease{
		"of a kubelet without a Node": leaseOf(corev1.NamespaceNodeLease, "vk", "vk", time.Hour),
		"of another name's program":   leaseOf(corev1.NamespaceNodeLease, "vk", "other", time.Hour),
	} {
		if plan := find(t, config(fake.NewClientset(lease))); len(plan.Objects) > 0 || !strings.Contains(fmt.Sprint(plan.Notes), "is left alone") {
			t.Errorf("a lease %s: %+v", name, plan)
		}
	}
}

// Objects that somebody writes meanwhile are not deleted, but for a Node that the control
// plane has written.
func TestWrittenMeanwhile(t *testing.T) {
	conflict := func(resource string) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: resource}, "vk", errors.New("the precondition failed"))
	}
	for name, c := range map[string]struct {
		resource  string
		meanwhile func(t *testing.T, client *fake.Clientset)
		want      string // the error; empty if it succeeds
	}{
		"its lease":             {"leases", func(*testing.T, *fake.Clientset) {}, "a process may act"},
		"its Node":              {"nodes", func(*testing.T, *fake.Clientset) {}, ""},
		"its Node by a process": {"nodes", func(t *testing.T, client *fake.Clientset) { add(t, client, nodeLease("vk", 0)) }, "its lease was made again"},
		"its Node, with pods":   {"nodes", func(t *testing.T, client *fake.Clientset) { add(t, client, podOn("vk", corev1.PodRunning)) }, "1 pods are bound"},
	} {
		client := fake.NewClientset(nodeOf("vk", "mock"), nodeLease("vk", time.Hour))
		plan := find(t, config(client))
		failures := 0
		fakeapi.React(&client.Fake, "delete", c.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures++; failures > 1 {
				return false, nil, nil
			}
			c.meanwhile(t, client)
			return true, nil, conflict(c.resource)
		})
		err := plan.Remove(t.Context(), config(client), func(deregister.Object) {})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := client.CoreV1().Nodes().Get(t.Context(), "vk", metav1.GetOptions{}); apierrors.IsNotFound(err) != (c.want == "") {
			t.Errorf("%s: the Node: %v", name, err)
		}
	}
}

func add(t *testing.T, client *fake.Clientset, object runtime.Object) {
	t.Helper()
	if err := client.Tracker().Add(object); err != nil {
		t.Error(err)
	}
}
