package kubernetes

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// The node has what the quotas of the one remote namespace allow, and for the rest
// what the configuration says; it keeps that while the remote cluster is away.
func TestCapacityFollowsQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := ParseConfig([]byte(header + `cluster: home
remote: {kubeconfig: testdata/kubeconfig}
namespaces: {mapping: fixed, name: guests}
capacity: {source: quota, interval: 10s, resources: {memory: 8Gi}}
`))
		if err != nil {
			t.Fatal(err)
		}
		home := nodeutil.ProviderConfig{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}}, Client: newHome("home-uid")}
		p, err := New(t.Context(), home, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		p.identifyAs("home-uid")
		quota := func(namespace, cpu string) *corev1.ResourceQuota {
			return &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse(cpu)}},
			}
		}
		remote := fake.NewClientset(quota("guests", "6"), quota("others", "1"))
		p.remote = remote

		var mu sync.Mutex
		var reported []string
		p.NotifyNodeStatus(t.Context(), func(n *corev1.Node) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, n.Status.Capacity.Cpu().String()+" "+n.Status.Allocatable.Memory().String())
		})
		want := func(last string, times int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(reported) != times || reported[len(reported)-1] != last {
				t.Errorf("reported %q, want %d, the last of them %q", reported, times, last)
			}
		}
		want("6 8Gi", 1)
		var away atomic.Bool
		away.Store(true)
		fakeapi.React(&remote.Fake, "list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("away")
		})
		if _, err := remote.CoreV1().ResourceQuotas("guests").Update(t.Context(), quota("guests", "9"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want("6 8Gi", 1)
		away.Store(false)
		time.Sleep(15 * time.Second)
		want("9 8Gi", 2)
	})
}
