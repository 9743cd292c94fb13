//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fault"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// shardCount is into how many parts the nodes are divided in these tests.
const shardCount = 10

// sharers are processes that share the nodes of a fleet, whose pods are in
// journals that all of them have.
type sharers struct {
	t          *testing.T
	name       string
	user       string
	kubeconfig string
	config     string
	journals   string // a directory with a file for each node
	args       []string
	rights     []string // arguments of print-rbac
	addresses  bool     // each process has one of its own
	started    int      // of these
}

// newSharers prepares processes for a number of nodes. With none the one node has
// the name itself.
func newSharers(t *testing.T, nodes int, args ...string) *sharers {
	t.Helper()
	return newSharersOf(t, strings.ToLower(t.Name()), nodes, args...)
}

// newSharersOf is newSharers for a test that has other nodes, too.
func newSharersOf(t *testing.T, name string, nodes int, args ...string) *sharers {
	t.Helper()
	dir := t.TempDir()
	s := &sharers{t: t, name: name, config: filepath.Join(dir, "mock.json"), journals: dir, args: args}
	names, only := []string{s.name}, s.name
	if nodes > 0 {
		names, only = nil, ""
	}
	for i := range nodes {
		names = append(names, fmt.Sprint(s.name, "-", i))
	}
	s.rights = []string{"--leader-elect"}
	if nodes > 0 {
		s.rights = []string{"--shards", "--leader-elect-namespace", accountNamespace}
		s.args = append(s.args, s.rights[1:]...)
	}
	s.user, s.kubeconfig = newAccountFor(t, dir, s.name, only, s.rights...)
	config := map[string]map[string]string{}
	for _, name := range names {
		config[name] = map[string]string{"journal": filepath.Join(dir, name+".journal")}
	}
	content, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, content, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		assertNothingForbidden(t, s.user)
		for _, name := range names {
			if err := client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	return s
}

// start starts a process; it is killed at the end of the test if it runs by then.
func (s *sharers) start() *virtualNode {
	s.t.Helper()
	return s.startWith(s.kubeconfig)
}

// startWith starts a process with a kubeconfig.
func (s *sharers) startWith(kubeconfig string) *virtualNode {
	s.t.Helper()
	n := &virtualNode{name: s.name, log: &lockedbuffer.Buffer{}}
	var env []string
	if s.addresses {
		s.started++
		env = append(env, fmt.Sprint("VKUBELET_POD_IP=192.0.2.", s.started))
	}
	n.launch(s.t, append([]string{"--kubeconfig", kubeconfig,
		"--provider", "mock", "--nodename", s.name, "--port", "0", "--provider-config", s.config}, s.args...), env...)
	s.t.Cleanup(func() {
		_ = n.process.Stop(os.Kill) // fails if the test has ended it
		if s.t.Failed() {
			s.t.Logf("log of process %d:\n%s", n.process.PID(), n.log.String())
		}
	})
	return n
}

// waitShares waits until the shards are held by a number of processes, each of
// which has the same share.
func (s *sharers) waitShares(processes int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d processes share the shards", processes), func(ctx context.Context) (bool, string) {
		leases, err := client.CoordinationV1().Leases(accountNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		shares := map[string]int{}
		for _, lease := range leases.Items {
			if strings.HasPrefix(lease.Name, s.name+"-shard-") {
				shares[ptr.Deref(lease.Spec.HolderIdentity, "nobody")]++
			}
		}
		for holder, share := range shares {
			if holder == "nobody" || share != shardCount/processes {
				return false, fmt.Sprint(shares)
			}
		}
		return len(shares) == processes, fmt.Sprint(shares)
	})
}

// waitFleet waits until two processes share the nodes of the fleet, and all are
// Ready, and returns their names.
func (s *sharers) waitFleet() (nodes []string) {
	s.t.Helper()
	s.waitShares(2)
	eventually(s.t, "all nodes are Ready", func(ctx context.Context) (bool, string) {
		ready := readyNodes(s.t, ctx, s.name, corev1.ConditionTrue)
		return ready == fleetSize, fmt.Sprintf("%d of %d", ready, fleetSize)
	})
	for i := range fleetSize {
		nodes = append(nodes, fmt.Sprint(s.name, "-", i))
	}
	return nodes
}

// assertCreatedOnce fails the test unless each pod of a namespace was created once
// in the provider, by either process.
func (s *sharers) assertCreatedOnce(ns string) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.journals, "*.journal"))
	if err != nil {
		s.t.Fatal(err)
	}
	var entries []entry
	for _, file := range files {
		entries = append(entries, (&virtualNode{journal: file}).journalOf(s.t, ns)...)
	}
	creates := createsByUID(entries)
	if pods := podsOf(s.t, ns); len(creates) != len(pods) {
		s.t.Errorf("%d pods were created, want %d", len(creates), len(pods))
	}
	for uid, times := range creates {
		if times != 1 {
			s.t.Errorf("pod %s was created %d times", uid, times)
		}
	}
}

// watchReady watches the nodes of a name, or those numbered after it, until stop
// is called, which returns what was seen of nodes that were not Ready.
func watchReady(t *testing.T, name string) (stop func() (unready []string)) {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion,
		&cache.ListWatch{WatchFuncWithContext: client.CoreV1().Nodes().Watch})
	if err != nil {
		t.Fatal(err)
	}
	var unready []string
	over := make(chan struct{})
	go func() {
		defer close(over)
		for event := range watcher.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				unready = append(unready, fmt.Sprintf("the watch has ended: %v", event.Object))
				continue
			}
			if node.Name != name && !strings.HasPrefix(node.Name, name+"-") {
				continue
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					unready = append(unready, fmt.Sprintf("%s: %s %s", node.Name, c.Status, c.Reason))
				}
			}
		}
	}()
	return sync.OnceValue(func() []string {
		watcher.Stop()
		<-over
		return unready
	})
}

// allRun creates a pod on each of some nodes, and waits until all run.
func allRun(t *testing.T, ns, prefix string, nodes []string) {
	t.Helper()
	for i, node := range nodes {
		createPod(t, ns, fmt.Sprint(prefix, "-", i), onNode(node), nil)
	}
	begin := time.Now()
	eventually(t, "a pod runs on each node", func(ctx context.Context) (bool, string) {
		count := 0
		for name := range running(t, ns) {
			if strings.HasPrefix(name, prefix+"-") {
				count++
			}
		}
		return count == len(nodes), fmt.Sprintf("%d of %d", count, len(nodes))
	})
	t.Logf("pods %s run on %d nodes after %v", prefix, len(nodes), time.Since(begin).Round(100*time.Millisecond))
}

// podsOf are the pods of a namespace by name.
func podsOf(t *testing.T, ns string) map[string]corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod
	}
	return pods
}

// assertUntouched fails the test if pods are not what they were. Only the address
// of their node follows the process that has it.
func (s *sharers) assertUntouched(before map[string]corev1.Pod, ns string) {
	s.t.Helper()
	now := podsOf(s.t, ns)
	for name, was := range before {
		is, ok := now[name]
		if s.addresses {
			was.Status.HostIP, was.Status.HostIPs = is.Status.HostIP, is.Status.HostIPs
		}
		if !ok || is.UID != was.UID {
			s.t.Fatalf("pod %s is not the one that ran before", name)
		} else if !equality.Semantic.DeepEqual(is.Status, was.Status) {
			s.t.Fatalf("the status of pod %s has changed from\n%+v to\n%+v", name, was.Status, is.Status)
		}
	}
}

// Two processes share a hundred nodes. When one is killed the other one takes its
// nodes over, and neither nodes nor pods notice; when it is back it gets a share.
func TestTwoProcessesShareAFleet(t *testing.T) {
	t.Parallel() // they wait most of the time
	s := newSharers(t, fleetSize, "--nodes", fmt.Sprint(fleetSize), "--shards", fmt.Sprint(shardCount))
	ns := newNamespace(t)
	first := s.start()
	second := s.start()
	nodes := s.waitFleet()
	unready := watchReady(t, s.name)
	defer unready()
	allRun(t, ns, "before", nodes)
	before := podsOf(t, ns)

	first.stop(t, syscall.SIGKILL)
	allRun(t, ns, "after-the-kill", nodes)
	s.waitShares(1)
	s.assertUntouched(before, ns)

	third := s.start()
	s.waitShares(2)
	allRun(t, ns, "after-its-return", nodes)
	second.stop(t, syscall.SIGTERM)
	s.waitShares(1)
	allRun(t, ns, "after-the-end-of-one", nodes)
	s.assertUntouched(before, ns)
	for _, seen := range unready() {
		t.Errorf("a node was not Ready: %s", seen)
	}
	s.assertCreatedOnce(ns)

	third.stop(t, syscall.SIGTERM)
	if ready := readyNodes(t, context.Background(), s.name, corev1.ConditionTrue); ready != fleetSize {
		t.Errorf("after the end of the last process %d of %d nodes are as they were", ready, fleetSize)
	}
	s.assertElectionRightsUsed(accountNamespace, printRBAC(t, s.name, "", s.rights...))
}

// Two processes share the nodes of a file, which changes while one of them is dead
// and nobody has its nodes.
func TestTwoProcessesShareNodePools(t *testing.T) {
	t.Parallel() // they wait most of the time
	const count = 2 * shardCount
	s := newSharers(t, count, "--shards", fmt.Sprint(shardCount))
	ns := newNamespace(t)
	file := filepath.Join(s.journals, "pools.yaml")
	s.args = append(s.args, "--config", file)
	write := func(tier string) {
		content := fmt.Sprintf("apiVersion: virtual-kubelet.io/v1alpha1\nkind: NodePools\npools: [{name: %s, count: %d, labels: {tier: %s}}]\n", s.name, count, tier)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	waitTier := func(tier string) {
		t.Helper()
		eventually(t, "all nodes are of tier "+tier, func(ctx context.Context) (bool, string) {
			nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "tier=" + tier})
			if err != nil {
				return false, err.Error()
			}
			ready := readyNodes(t, ctx, s.name, corev1.ConditionTrue)
			return ready == count && len(nodes.Items) == count, fmt.Sprintf("%d of %d, and %d are Ready", len(nodes.Items), count, ready)
		})
	}
	var nodes []string
	for i := range count {
		nodes = append(nodes, fmt.Sprint(s.name, "-", i))
	}
	write("front")
	first := s.start()
	s.start()
	s.waitShares(2)
	waitTier("front")
	unready := watchReady(t, s.name)
	defer unready()
	allRun(t, ns, "before", nodes)
	before := podsOf(t, ns)

	first.stop(t, syscall.SIGKILL)
	write("back")
	waitTier("back")
	allRun(t, ns, "after-the-kill", nodes)
	s.assertUntouched(before, ns)
	s.assertCreatedOnce(ns)
	for _, seen := range unready() {
		t.Errorf("a node was not Ready: %s", seen)
	}
}

// A process that cannot reach the API server lets go of its nodes before another one
// has them, and does not run their pods when it is back.
func TestProcessThatIsCutOffLetsGo(t *testing.T) {
	t.Parallel() // they wait most of the time
	s := newSharers(t, fleetSize, "--nodes", fmt.Sprint(fleetSize), "--shards", fmt.Sprint(shardCount))
	ns := newNamespace(t)
	s.addresses = true
	way, kubeconfig := s.proxy()
	cutOff := s.startWith(kubeconfig)
	s.start()
	nodes := s.waitFleet()
	unready := watchReady(t, s.name)
	defer unready()
	allRun(t, ns, "before", nodes)
	before := podsOf(t, ns)

	way.Partition(time.Hour, true)
	allRun(t, ns, "without-it", nodes)
	s.waitShares(1)
	letGo := strings.Count(cutOff.log.String(), "leaving the shard to others")
	if letGo != shardCount/2 {
		t.Errorf("it let go of %d shards, want %d", letGo, shardCount/2)
	}
	way.Heal()
	s.waitShares(2)
	allRun(t, ns, "with-it", nodes)
	s.assertUntouched(before, ns)
	for _, seen := range unready() {
		t.Errorf("a node was not Ready: %s", seen)
	}
	s.assertCreatedOnce(ns)
}

// proxy stands between one process and the API server; kubeconfig leads there.
func (s *sharers) proxy() (way *fault.Transport, kubeconfig string) {
	s.t.Helper()
	config := cluster.Config()
	upstream, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData, CAFile: config.CAFile}})
	if err != nil {
		s.t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	way = fault.NewTransport(upstream, 1)
	server := httptest.NewTLSServer(fault.NewProxy(target, way)) // tokens go over TLS only
	s.t.Cleanup(server.Close)
	s.t.Cleanup(way.Heal) // or requests would keep the server
	leads, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, cluster := range leads.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = server.URL, ca
	}
	kubeconfig = s.kubeconfig + "-proxied"
	if err := clientcmd.WriteToFile(*leads, kubeconfig); err != nil {
		s.t.Fatal(err)
	}
	return way, kubeconfig
}

// One process runs the node, and the other one stands by.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel() // they wait most of the time
	s := newSharers(t, 0, "--leader-elect", "--metrics-addr", "127.0.0.1:0")
	ns := newNamespace(t)
	leader := s.start()
	node := &virtualNode{name: s.name}
	node.waitReady(t, time.Now())
	standby := s.start()
	s.wantLeads(standby, 0)
	s.wantLeads(leader, 1)
	unready := watchReady(t, s.name)
	defer unready()
	allRun(t, ns, "before", []string{s.name})
	before := podsOf(t, ns)

	leader.stop(t, syscall.SIGKILL)
	allRun(t, ns, "after-the-kill", []string{s.name})
	s.wantLeads(standby, 1)
	leader, standby = standby, s.start()
	eventually(t, "the new process stands by", func(context.Context) (bool, string) {
		return strings.Contains(standby.log.String(), "There is a leader"), standby.log.String()
	})
	leader.stop(t, syscall.SIGTERM)
	allRun(t, ns, "after-the-end", []string{s.name})
	s.assertUntouched(before, ns)
	for _, seen := range unready() {
		t.Errorf("the node was not Ready: %s", seen)
	}
	s.assertCreatedOnce(ns)
	standby.stop(t, syscall.SIGTERM)
	s.assertElectionRightsUsed(metav1.NamespaceSystem, printRBAC(t, s.name, s.name, s.rights...))
}

// wantLeads waits until the metrics of a process say whether it leads: 1 or 0. Whether or
// not, it answers probes.
func (s *sharers) wantLeads(n *virtualNode, leads int) {
	s.t.Helper()
	want := fmt.Sprintf("leader_election_master_status{name=%q} %d\n", s.name+"-leader", leads)
	eventually(s.t, strings.TrimSpace(want), func(ctx context.Context) (bool, string) {
		if !servingMetrics.MatchString(n.log.String()) {
			return false, "it does not serve metrics yet"
		}
		found := ""
		for _, path := range []string{"/healthz", "/livez", "/readyz", "/metrics"} {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress(s.t, n.log)+path, nil)
			if err != nil {
				s.t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return false, err.Error()
			}
			body, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if found = string(body); err != nil || response.StatusCode != http.StatusOK {
				return false, fmt.Sprint(path, ": ", response.Status, " ", found, err)
			}
		}
		return strings.Contains(found, want), found
	})
}

// assertElectionRightsUsed fails the test if a right on the leases of the election,
// which are in that namespace, was not used.
func (s *sharers) assertElectionRightsUsed(namespace, manifests string) {
	s.t.Helper()
	requests, found := requestsOf(s.t, s.user), false
	for _, right := range rightsOf(s.t, manifests) {
		if right.namespace != namespace || right.resource != "leases" {
			continue
		}
		found = true
		if !slices.ContainsFunc(requests, right.covers) {
			s.t.Errorf("the right to %s is not used", right)
		}
	}
	if !found {
		s.t.Error("there are no rights for the election")
	}
}
