package kubernetes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// between returns the provider of a node "far" whose remote cluster is a handler.
func between(t *testing.T, more string, remote http.Handler) *Provider {
	t.Helper()
	server := httptest.NewServer(remote)
	t.Cleanup(server.Close)
	cfg, err := ParseConfig([]byte(header + "cluster: home\nremote: {kubeconfig: testdata/kubeconfig}\n" + more))
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
	none := corev1listers.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	p, err := New(context.Background(), nodeutil.ProviderConfig{Node: n, Client: newHome("home-uid"), Pods: none}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	p.identifyAs("home-uid")
	if p.remote, err = clientset.NewForConfig(&rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	return p
}

// Statistics of the remote metrics API are reported for the home pods; those of other
// pods are not.
func TestStatsOfMetrics(t *testing.T) {
	asked := ""
	p := between(t, "stats: metrics\n", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [
			{"metadata": {"namespace": "far", "name": "web-1"}, "timestamp": "2026-01-02T03:04:05Z", "window": "15s", "containers": [
				{"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}, {"name": "side", "usage": {"cpu": "1500u", "memory": "1Mi"}}]},
			{"metadata": {"namespace": "far", "name": "foreign"}, "containers": [{"name": "main", "usage": {"cpu": "4"}}]}]}`)
	}))
	err := p.informer.GetStore().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "far", Name: "web-1", Labels: p.translate.Home.LabelsOf("shop", "u-1"), Annotations: map[string]string{translate.AnnotationName: "web"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	summary, err := p.GetStatsSummary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(summary.Pods) != 1 {
		t.Fatalf("there are %+v; asked for %s", summary.Pods, asked)
	}
	pod := summary.Pods[0]
	if ref := pod.PodRef; ref.Namespace != "shop" || ref.Name != "web" || ref.UID != "u-1" {
		t.Errorf("they are of %+v", ref)
	}
	if *pod.CPU.UsageNanoCores != 251_500_000 || *pod.Memory.WorkingSetBytes != 65<<20 || len(pod.Containers) != 2 || *pod.Containers[0].CPU.UsageNanoCores != 250_000_000 {
		t.Errorf("the pod uses %+v, %+v", pod.CPU, pod.Memory)
	}
	if *summary.Node.CPU.UsageNanoCores != 251_500_000 || *summary.Node.Memory.WorkingSetBytes != 65<<20 {
		t.Errorf("the node uses %+v, %+v", summary.Node.CPU, summary.Node.Memory)
	}
	local := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	p.home.Pods = corev1listers.NewPodLister(local)
	if err := local.Add(&corev1.Pod{ // which does not have the other container
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}); err != nil {
		t.Fatal(err)
	}
	if summary, err = p.GetStatsSummary(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pod := summary.Pods[0]; len(pod.Containers) != 1 || pod.Containers[0].Name != "main" || *pod.CPU.UsageNanoCores != 251_500_000 {
		t.Errorf("of the pod at home there are %+v, %+v", pod.Containers, pod.CPU)
	}
	families, err := p.GetMetricsResource(t.Context())
	if err != nil || len(families) == 0 {
		t.Errorf("metrics for kubectl top: %v, %v", families, err)
	}
}

// The clock of a remote node that is ahead makes no figures of the future.
func TestStatsOfMetricsOfAClockThatIsAhead(t *testing.T) {
	p := between(t, "stats: metrics\n", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [
			{"metadata": {"namespace": "far", "name": "web-1"}, "timestamp": %q, "window": "15s", "containers": [
				{"name": "main", "usage": {"cpu": "250m", "memory": "64Mi"}}]}]}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	err := p.informer.GetStore().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "far", Name: "web-1", Labels: p.translate.Home.LabelsOf("shop", "u-1"), Annotations: map[string]string{translate.AnnotationName: "web"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	summary, err := p.GetStatsSummary(t.Context())
	if err != nil || len(summary.Pods) != 1 {
		t.Fatalf("there are %+v, %v", summary, err)
	}
	pod := summary.Pods[0]
	for _, at := range []metav1.Time{pod.CPU.Time, pod.Memory.Time, pod.Containers[0].CPU.Time, pod.Containers[0].Memory.Time, summary.Node.CPU.Time, summary.Node.Memory.Time} {
		if at.After(time.Now()) {
			t.Errorf("there are figures of %s", at)
		}
	}
}

// A missing metrics API is an error, not a cluster in which nothing is used.
func TestStatsWithoutMetricsServer(t *testing.T) {
	p := between(t, "stats: metrics\n", http.NotFoundHandler())
	if summary, err := p.GetStatsSummary(t.Context()); err == nil {
		t.Errorf("got %+v", summary)
	}
}

// A remote node that does not respond does not hide the statistics of others, nor
// exceed the caller's timeout.
func TestStatsOfKubeletsWithADeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRig(t, "stats: kubelets\n", newRemote())
		for _, node := range []string{"well", "dead"} {
			pod := named(node)
			remote, err := p.translate.Pod(pod, nil)
			if err != nil {
				t.Fatal(err)
			}
			remote.Spec.NodeName, remote.UID = node, "far-"+pod.UID
			if err := p.informer.GetStore().Add(remote); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		p.Provider.remote, err = clientset.NewForConfig(&rest.Config{Host: "http://remote", QPS: -1, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "dead") {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			body := `{"pods": [{"podRef": {"namespace": "shop", "name": "well", "uid": "far-uid-well"}, "cpu": {"usageNanoCores": 7}}]}`
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		summary, err := p.GetStatsSummary(t.Context())
		if err != nil || len(summary.Pods) != 1 || summary.Pods[0].PodRef.Name != "well" {
			t.Errorf("%v: %+v", err, summary)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
