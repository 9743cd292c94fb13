package faults

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

const (
	outageNodes = 50
	outage      = 10 * time.Minute
	// leaseDuration is how long a node counts as alive after a renewal.
	leaseDuration = 40 * time.Second
)

// counting counts the requests of all nodes, by second.
type counting struct {
	http.RoundTripper
	began time.Time

	mu       sync.Mutex
	bySecond map[int]int
}

func (c *counting) RoundTrip(request *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.bySecond[int(time.Since(c.began)/time.Second)]++
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(request)
}

// between returns how many requests there were from one time to another, and how
// many in the worst second.
func (c *counting) between(from, to time.Duration) (all, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for second, n := range c.bySecond {
		if at := time.Duration(second) * time.Second; at >= from && at < to {
			all, most = all+n, max(most, n)
		}
	}
	return all, most
}

// The API server is away for ten minutes: pods go on, nothing is deleted, each
// node is Ready within a lease's time of its return, and the nodes do not all come
// at once.
func TestAPIServerIsAwayForTenMinutes(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(map[bool]string{false: "refused", true: "silent"}[silent], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { awayForTenMinutes(t, silent) })
		})
	}
}

func awayForTenMinutes(t *testing.T, silent bool) {
	server := newAPIServer(unaudited{})
	admin := clientOver(server.transport(false))
	requests := &counting{began: time.Now(), bySecond: map[int]int{}}
	way := fault.NewTransport(server.transport(true), 1)
	requests.RoundTripper = way
	models := startNodes(t, clientOver(requests))
	for i := range outageNodes {
		_, err := admin.CoreV1().Pods("default").Create(t.Context(), podOn(i), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Minute)
	checkRunning(t, admin, models)
	usual, _ := requests.between(time.Since(requests.began)-time.Minute, time.Since(requests.began))

	away := time.Since(requests.began)
	way.Partition(outage, silent)
	time.Sleep(outage)
	back := time.Since(requests.began)
	time.Sleep(leaseDuration)
	synctest.Wait()

	checkRunning(t, admin, models)
	checkLeases(t, admin)
	for i, m := range models {
		if len(m.all()) != 1 || m.ran[m.all()[0].UID] != 1 {
			t.Errorf("node %d: its pod did not just go on: %v", i, m.ran)
		}
	}
	during, _ := requests.between(away, back)
	if perMinute := during / int(outage/time.Minute); perMinute > 42*outageNodes {
		t.Errorf("%d requests a minute of %d nodes during the outage: more than seven things tried every ten seconds", perMinute, outageNodes)
	}
	after, most := requests.between(back, back+leaseDuration)
	t.Logf("requests of %d nodes: %d a minute before, %d a minute during the outage, %d in the %v after it, %d in the worst second",
		outageNodes, usual, during/int(outage/time.Minute), after, leaseDuration, most)
	if !silent && most > after/3 {
		t.Errorf("%d of %d requests after the outage came in one second", most, after)
	}
	if after > 20*outageNodes {
		t.Errorf("%d requests of %d nodes in the %v after the outage", after, outageNodes, leaseDuration)
	}
}

func podOn(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{behaviour: runs}},
		Spec: corev1.PodSpec{
			NodeName:   fmt.Sprintf("node-%d", i),
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
	}
}

// startNodes starts nodes, each with a provider of its own, until the test ends.
func startNodes(t *testing.T, client kubernetes.Interface) []*model {
	t.Helper()
	var models []*model
	for i := range outageNodes {
		m := newModel(shapes[i%len(shapes)], unaudited{})
		made, err := nodeutil.NewNode(fmt.Sprintf("node-%d", i),
			func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
				// Else the node looks for one, with the real network.
				cfg.Node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
				return nodeutil.AsProvider(m.handler()), nil, nil
			},
			nodeutil.WithClient(client), eventless)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- made.Run(t.Context()) }()
		t.Cleanup(func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
			m.close()
		})
		models = append(models, m)
	}
	return models
}

// checkRunning sees whether all pods run and all nodes are ready, by the API.
func checkRunning(t *testing.T, admin kubernetes.Interface, models []*model) {
	t.Helper()
	for i := range models {
		pod, err := admin.CoreV1().Pods("default").Get(t.Context(), fmt.Sprintf("pod-%d", i), metav1.GetOptions{})
		if err != nil || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			t.Errorf("pod %d: %v, %v", i, pod.Status.Phase, err)
		}
		object, err := admin.CoreV1().Nodes().Get(t.Context(), fmt.Sprintf("node-%d", i), metav1.GetOptions{})
		if err != nil || !isReady(object) {
			t.Errorf("node %d is not ready: %v", i, err)
		}
	}
}

// checkLeases sees whether all leases are valid.
func checkLeases(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	leases, err := admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != outageNodes {
		t.Fatalf("%d leases: %v", len(leases.Items), err)
	}
	for i := range leases.Items {
		if age := time.Since(leases.Items[i].Spec.RenewTime.Time); age > leaseDuration {
			t.Errorf("%s was renewed %v ago", leases.Items[i].Name, age)
		}
	}
}

func isReady(object *corev1.Node) bool {
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unaudited lets everything pass.
type unaudited struct{}

func (unaudited) auditPatch(_, _ *corev1.Pod, _ string, _ []byte) {}
func (unaudited) auditDelete(*corev1.Pod, *metav1.DeleteOptions)  {}
func (unaudited) auditEnd(*corev1.Pod)                            {}
func (unaudited) know(*corev1.Pod)                                {}
func (unaudited) auditCreate(*model, *corev1.Pod)                 {}
func (unaudited) auditEndOf(*model, *corev1.Pod, *corev1.Pod)     {}

func eventless(cfg *nodeutil.NodeConfig) error {
	cfg.EventRecorder = silent{}
	return nil
}
