package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// Whether the API server does not answer, or is not asked, makes a difference.
func TestNoAnswer(t *testing.T) {
	untrusted := httptest.NewTLSServer(answer(200, "", ""))
	defer untrusted.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Hour)}
	expired, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	refusing := httptest.NewServer(answer(401, metav1.StatusReasonUnauthorized, "Unauthorized"))
	defer refusing.Close()
	for name, c := range map[string]struct {
		config       *rest.Config
		message, fix string
	}{
		"nobody":      {&rest.Config{Host: gone.URL}, "does not answer", "kubectl cluster-info"},
		"a password":  {&rest.Config{Host: strings.Replace(gone.URL, "//", "//me:secret@", 1)}, "does not answer", "kubectl cluster-info"},
		"untrusted":   {&rest.Config{Host: untrusted.URL}, "not one that the kubeconfig trusts", "certificate-authority-data"},
		"no exec":     {&rest.Config{Host: untrusted.URL, ExecProvider: &clientcmdapi.ExecConfig{Command: "no-such-command", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}, "was not asked", "by hand"},
		"wrong proxy": {&rest.Config{Host: untrusted.URL, Proxy: http.ProxyURL(must(t, "http://me:secret@127.0.0.1:1"))}, "does not answer", "127.0.0.1:1"},
	} {
		found := checkCredentials(t.Context(), examine(t, c.config))
		if found.Status != Failed || !strings.Contains(found.Message, c.message) || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want %q, fix %q", name, found, c.message, c.fix)
		}
		if text := found.Message + found.Fix; strings.Contains(text, "secret") {
			t.Errorf("%s: the password is shown: %s", name, text)
		}
	}
	e := examine(t, &rest.Config{Host: refusing.URL})
	e.Cluster = &rest.Config{Host: refusing.URL, TLSClientConfig: rest.TLSClientConfig{CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: expired})}}
	if found := checkCredentials(t.Context(), e); !strings.Contains(found.Message, "has expired") || !strings.Contains(found.Fix, "--bootstrap-kubeconfig") {
		t.Errorf("an expired certificate: %+v", found)
	}
}

func must(t *testing.T, address string) *url.URL {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// A server that asks to be asked again in an hour is not waited for.
func TestThrottledVersion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		cancel()
	})
	if found := checkVersion(ctx, e); found.Status != Failed {
		t.Errorf("%+v", found)
	}
}

// What was not examined since the operator has had enough is not reported as broken.
func TestStoppedExamination(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := connect(t, func(http.ResponseWriter, *http.Request) { cancel() })
	results, err := Run(ctx, Config{Cluster: e.Cluster, Nodes: []Node{{Name: "a"}, {Name: "b"}}})
	if err == nil || results != nil {
		t.Errorf("%v, %+v", err, results)
	}
}

func TestAddress(t *testing.T) {
	const unreached = "error trying to reach service: "
	for name, c := range map[string]struct {
		handler      http.HandlerFunc
		status       Status
		message, fix string
	}{
		"reached":            {answer(200, "", "ok"), OK, "", ""},
		"not reached":        {answer(503, metav1.StatusReasonServiceUnavailable, unreached+"dial tcp 192.0.2.2:10250: i/o timeout"), Failed, "cannot reach", "open port 10250"},
		"by a name":          {answer(503, metav1.StatusReasonServiceUnavailable, unreached+"dial tcp: lookup vk on 10.0.0.10:53: no such host"), Failed, "cannot resolve", "--kubelet-preferred-address-types"},
		"by a tunnel":        {answer(503, metav1.StatusReasonServiceUnavailable, unreached+"No agent available"), Failed, "tunnel", "konnectivity"},
		"no certificate yet": {answer(503, metav1.StatusReasonServiceUnavailable, unreached+"remote error: tls: internal error"), Failed, "no serving certificate", "kubectl get csr"},
		"not trusted":        {answer(503, metav1.StatusReasonServiceUnavailable, unreached+"tls: failed to verify certificate: x509: signed by unknown authority"), Failed, "does not trust", "--kubelet-certificate-authority"},
		"not well":           {answer(500, "", "[+]ping ok\n[-]log failed\nhealthz check failed\n"), Failed, "is not well", "restart"},
		"not authenticated":  {answer(401, "", "Unauthorized"), Failed, "refuses the API server", "--client-ca-file"},
		"not allowed":        {answer(403, "", "Forbidden (user=kube-apiserver, verb=get, resource=nodes, subresource=proxy)"), Failed, "does not let", "kubelet-api-admin"},
		"who runs this":      {answer(403, metav1.StatusReasonForbidden, `nodes \"vk\" is forbidden: User \"jane\" cannot get resource \"nodes/proxy\"`), NotChecked, "may not read nodes/proxy", ""},
	} {
		e := connect(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/nodes/vk/proxy/healthz" || r.URL.RawQuery == "" {
				t.Errorf("it asks for %s", r.URL) // without a query everybody is answered
			}
			c.handler(w, r)
		})
		found := checkAddress(t.Context(), e)
		if found.Status != c.status || !strings.Contains(found.Message, c.message) || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want %s, %q, fix %q", name, found, c.status, c.message, c.fix)
		}
	}
}

// leaseOf returns a lease that its holder and the API server say was renewed so long ago.
func leaseOf(name, holder string, byHolder, byServer time.Duration) *coordinationv1.Lease {
	server := metav1.NewTime(time.Now().Add(-byServer))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name, Annotations: map[string]string{"virtual-kubelet.io/holder": "a_b_c_d_e_f_g"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Time: &server, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-byHolder)))},
	}
}

// Whether a process acts for the node is not a question of its clock.
func TestLeaseByTheServersClock(t *testing.T) {
	for name, c := range map[string]struct {
		byHolder, byServer time.Duration
		status             Status
		message            string
	}{
		"alive":                    {time.Second, time.Second, OK, "renewed"},
		"alive, its clock behind":  {time.Hour, time.Second, Warning, "behind the API server's"},
		"alive, its clock ahead":   {-time.Hour, time.Second, Warning, "ahead of the API server's"},
		"ended":                    {time.Hour, time.Hour, Failed, "no process acts"},
		"ended, its clock ahead":   {0, time.Hour, Failed, "no process acts"},
		"ended, its clock far off": {-24 * time.Hour, time.Hour, Failed, "no process acts"},
	} {
		e := &examination{client: fake.NewClientset(leaseOf("vk", "vk", c.byHolder, c.byServer)), node: Node{Name: "vk"}}
		if found := checkLease(t.Context(), e); found.Status != c.status || !strings.Contains(found.Message, c.message) {
			t.Errorf("%s: %+v, want %s, %q", name, found, c.status, c.message)
		}
	}
}

func TestElection(t *testing.T) {
	shard := func(name string, count int, age time.Duration) runtime.Object {
		lease := leaseOf(name, "somebody", age, age)
		lease.Namespace, lease.Labels = "elect", map[string]string{"virtual-kubelet.io/shards": "vk"}
		lease.Annotations["virtual-kubelet.io/shard-count"] = fmt.Sprint(count)
		return lease
	}
	leader := func(holder string, age time.Duration) runtime.Object {
		lease := leaseOf("vk-leader", holder, age, age)
		lease.Namespace = "elect"
		return lease
	}
	shards, leads := Elections{Namespace: "elect", Name: "vk", Shards: 2}, Elections{Namespace: "elect", Leader: "vk-leader"}
	for name, c := range map[string]struct {
		of      Elections
		objects []runtime.Object
		status  Status
		message string
	}{
		"all is well":           {shards, []runtime.Object{shard("vk-shard-0", 2, 0), shard("vk-shard-1", 2, 0), shard("vk-member-1", 2, 0)}, OK, "1 processes share 2 shards"},
		"nobody":                {shards, []runtime.Object{shard("vk-shard-0", 2, 0)}, Failed, "no process shares"},
		"one that is gone":      {shards, []runtime.Object{shard("vk-shard-0", 2, 0), shard("vk-shard-1", 2, time.Hour), shard("vk-member-1", 2, 0)}, Failed, "no process has vk-shard-1"},
		"two numbers of shards": {shards, []runtime.Object{shard("vk-member-1", 2, 0), shard("vk-member-2", 3, 0)}, Failed, "go by 2 and 3 shards"},
		"another number":        {shards, []runtime.Object{shard("vk-member-2", 3, 0)}, Failed, "go by 3 shards, and this configuration by 2"},
		"a leader":              {leads, []runtime.Object{leader("a", 0)}, OK, "a leads"},
		"a leader that is gone": {leads, []runtime.Object{leader("a", time.Hour)}, Failed, "no process leads"},
		"one that has released": {leads, []runtime.Object{leader("", 0)}, Failed, "no process leads"},
		"no leader":             {leads, nil, Failed, "no process has led"},
	} {
		e := &examination{Config: Config{Elections: c.of}, client: fake.NewClientset(c.objects...)}
		if found := checkElection(t.Context(), e); found.Status != c.status || !strings.Contains(found.Message, c.message) {
			t.Errorf("%s: %+v, want %s, %q", name, found, c.status, c.message)
		}
	}
}

// A cloud's controller deletes a Node that is no machine of the cloud while it is not ready.
func TestNodeThatACloudDeletes(t *testing.T) {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Reason: "DeletingNode",
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "vk"}, LastTimestamp: metav1.Now(),
		Message: "Deleting node vk because it does not exist in the cloud provider"}
	e := &examination{client: fake.NewClientset(event), node: Node{Name: "vk"}}
	if found := checkNode(t.Context(), e); found.Status != Failed || !strings.Contains(found.Message, "because it does not exist in the cloud provider") || found.Fix != keepReady {
		t.Errorf("without a Node: %+v", found)
	}
	e.client = fake.NewClientset(event, virtualNode("192.0.2.2", 10250))
	if found := checkNode(t.Context(), e); found.Status != Warning {
		t.Errorf("with a Node: %+v", found)
	}
}

// A Node beside machines of a cloud needs a provider ID that its controllers leave alone.
func TestNodeBesideMachinesOfACloud(t *testing.T) {
	machine := func(name, id string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
	}
	for name, c := range map[string]struct {
		other, id, service string
	}{
		"eks": {"aws:///eu-west-1a/i-1", "", "eks"}, "aks": {"azure:///subscriptions/1", "", "aks"}, "gke": {"gce://p/z/m", "", "gke"},
		"marked": {"aws:///eu-west-1a/i-1", "aws:////virtual-kubelet-vk", ""}, "no cloud": {"kind://docker/kind/kind-worker", "", ""}, "alone": {"", "", ""},
	} {
		object := virtualNode("192.0.2.2", 10250)
		object.Spec.ProviderID = c.id
		e := &examination{client: fake.NewClientset(object, machine("machine", c.other)), node: Node{Name: "vk"}}
		found := checkNode(t.Context(), e)
		if c.service == "" && found.Status != OK || c.service != "" && (found.Status != Warning || !strings.Contains(found.Fix, "--managed-cluster "+c.service+" ")) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// A pod may have no tolerations to add one to, and the control plane's own taints are not
// to be tolerated.
func TestPodsThatTaintsKeepOut(t *testing.T) {
	provider := corev1.Taint{Key: "virtual-kubelet.io/provider", Value: "mock", Effect: corev1.TaintEffectNoSchedule}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	some := []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
	for name, c := range map[string]struct {
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		fix         string
	}{
		"no tolerations": {[]corev1.Taint{provider}, nil, `"path": "/spec/tolerations", "value": [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}]}]'`},
		"others":         {[]corev1.Taint{provider}, some, `"path": "/spec/tolerations/-", "value": {"key": "virtual-kubelet.io/provider", "operator": "Exists"}}]'`},
		"not ready":      {[]corev1.Taint{notReady}, some, "the control plane takes this taint away"},
		"both":           {[]corev1.Taint{notReady, provider}, some, `"key": "virtual-kubelet.io/provider"`},
		"cordoned":       {[]corev1.Taint{cordoned}, some, "kubectl uncordon vk"},
	} {
		object := virtualNode("192.0.2.2", 10250)
		object.Labels["for"], object.Spec.Taints = "this", c.taints
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"for": "this"}, Tolerations: c.tolerations}}
		e := &examination{client: fake.NewClientset(pod), node: Node{Name: "vk"}, object: object}
		if found := checkPods(t.Context(), e); found.Status != Warning || !strings.Contains(found.Fix, c.fix) {
			t.Errorf("%s: %+v, want the fix %q", name, found, c.fix)
		}
	}
}
