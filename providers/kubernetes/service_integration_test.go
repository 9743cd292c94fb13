//go:build integration

package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/ccigateway"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/huaweicci"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// guests is the namespace in the service.
const guests = "guests"

// cci returns a configuration of provider huaweicci for a gateway.
func cci(t *testing.T, gateway *ccigateway.Gateway, more string) huaweicci.Config {
	t.Helper()
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(caFile, gateway.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := huaweicci.ParseConfig([]byte("Project: " + guests + "\nRegion: " + ccigateway.Region + "\nEndpoint: " + gateway.URL + "\nCAFile: " + caFile + "\nCluster: home\n" + more))
	if err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"CCI_APP_KEY": ccigateway.AccessKey, "CCI_APP_SECRET": ccigateway.SecretKey}
	if strings.Contains(more, "IAM:") {
		environment = map[string]string{"CCI_IAM_PASSWORD": ccigateway.Password}
	}
	cfg.Merge(func(name string) string { return environment[name] })
	return cfg
}

func newCCI(cfg huaweicci.Config) nodeutil.NewProviderFunc {
	return func(home nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := huaweicci.New(context.Background(), home, cfg)
		return p, p, err
	}
}

// TestCCI has a home cluster, and the API of Huawei CCI 2.0 with signed requests before
// another. What the gateway refuses fails the test.
func TestCCI(t *testing.T) {
	t.Parallel() // it mostly waits
	home := startCluster(t)
	remote := startCluster(t)
	startMock(t, remote, "remote-1")
	gateway := ccigateway.Start(t, remote.Config(), ccigateway.Options{V2: true, Watches: true})
	cfg := cci(t, gateway, `
API: v2
Pods: 200
ProjectID: "`+ccigateway.ProjectID+`"
Network: {SubnetID: subnet, SecurityGroup: group, DomainID: account}
Kubernetes:
  evicted: restart
  podIPs: [{remote: 10.244.0.0/16, home: 10.99.0.0/16}]
`)
	virtual := startNode(t, home.client, homeNode, newCCI(cfg))
	w := &world{t: t, home: home, remote: remote, namespaces: translate.Namespaces{Mapping: translate.Fixed, Name: guests}, isService: true}
	restart := func(meanwhile func()) {
		virtual.end()
		meanwhile()
		virtual = startNode(t, home.client, homeNode, newCCI(cfg)) // ends with t, not with a subtest
	}
	t.Run("clash", w.testNameConflict)
	t.Run("commands", w.testCommands)
	t.Run("taken away", w.testTakenAway)
	t.Run("taken away unseen", func(t *testing.T) { w.testTakenAwayUnseen(t, restart) })
	t.Run("deployment", w.testDeployment)
	t.Run("taken back", func(t *testing.T) {
		w.testMetadataRemoved(t, restart, func(*testing.T, *corev1.Pod) int { return gateway.Count("PATCH pods") })
	})
	t.Run("reflection", func(t *testing.T) { w.testReflection(t, restart) })
	t.Run("nothing is left", w.testNothingLeft)
	if n := len(gateway.Networks(guests)); n != 1 {
		t.Errorf("the namespace has %d networks", n)
	}
	wantNoneRefused(t, gateway)

	// Without watches, pods are listed again and again. CCI 1 has other paths and sizes.
	for what, options := range map[string]ccigateway.Options{"v2": {V2: true}, "v1": {Watches: true}} {
		virtual.end()
		gateway := ccigateway.Start(t, remote.Config(), options)
		gateway.Bind(guests)
		older := w.pod(t, "older-"+what, nil)
		w.createAsOlderProvider(t, older)
		virtual = startNode(t, home.client, homeNode, newCCI(cci(t, gateway, "API: "+what+"\nPods: 200\n")))
		w.acceptOtherPlace(t)
		t.Run("older "+what, func(t *testing.T) {
			w.waitRunning(t, older)
			if far, err := w.remotePod(t.Context(), older.UID); err != nil || far.Name != guests+"-"+older.Name {
				t.Errorf("the pod of the older provider was not adopted: %v, %v", far, err)
			}
			w.delete(t, older)
		})
		t.Run("another "+what, func(t *testing.T) {
			pod := w.waitRunning(t, w.pod(t, "another-"+what, nil))
			if out, err := w.home.Kubectl(t.Context(), "exec", pod.Name, "--", "sh", "-c", "echo far; exit 7").CombinedOutput(); err == nil || !strings.Contains(string(out), "far") || !strings.Contains(string(out), "7") {
				t.Errorf("kubectl exec: %v: %s", err, out)
			}
			w.delete(t, pod)
			w.testNothingLeft(t)
		})
		wantNoneRefused(t, gateway)
	}
}

// acceptOtherPlace does as the node says, which is not ready since its configuration leads to another
// place than before.
func (w *world) acceptOtherPlace(t *testing.T) {
	t.Helper()
	command := regexp.MustCompile("kubectl (annotate node .*)$")
	var accept []string
	eventually(t, "the node says how to accept the other place", func(ctx context.Context) error {
		found, err := w.home.client.CoreV1().Nodes().Get(ctx, homeNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if match := command.FindStringSubmatch(c.Message); c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && match != nil {
				accept = strings.Fields(match[1])
				return nil
			}
		}
		return fmt.Errorf("conditions %v", found.Status.Conditions)
	})
	w.kubectl(t, accept...)
}

// createAsOlderProvider creates the remote pod of a home pod as the older provider of CCI did.
func (w *world) createAsOlderProvider(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	older := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: guests + "-" + pod.Name, Annotations: map[string]string{
			"virtual-kubelet-namespace": pod.Namespace, "virtual-kubelet-podname": pod.Name,
			"virtual-kubelet-uid": string(pod.UID), "virtual-kubelet-nodename": homeNode,
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/app:1"}}},
	}
	if _, err := w.remote.client.CoreV1().Pods(guests).Create(t.Context(), older, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestCCIConformance runs pods of CCI 2.0 as processes of a node of the cluster behind it.
func TestCCIConformance(t *testing.T) {
	remote := startCluster(t)
	createNamespace(t, remote.client)
	startProcesses(t, remote)
	gateway := ccigateway.Start(t, remote.Config(), ccigateway.Options{V2: true, Watches: true})
	gateway.Bind(guests)
	cfg := cci(t, gateway, "API: v2\nPods: 200\nIAM: {User: "+ccigateway.User+", Domain: "+ccigateway.Domain+", Endpoint: \""+gateway.URL+"\"}\n")
	providertest.Suite{
		NewProvider: newCCI(cfg),
		Capabilities: []providertest.Capability{
			providertest.Commands, providertest.Logs, providertest.Exec, providertest.Attach, providertest.PortForward,
			providertest.Volumes, providertest.Tokens, providertest.InitContainers, providertest.Restarts,
			providertest.Deadlines, providertest.Probes, providertest.Hooks, providertest.TerminationMessages, providertest.SurvivesRestart,
		},
		ControlPlane: controlPlane,
		NodeName:     "providertest-huaweicci",
	}.Run(t)
	wantNoneRefused(t, gateway)
}

// wantNoneRefused checks that the gateway has not refused anything.
func wantNoneRefused(t *testing.T, gateway *ccigateway.Gateway) {
	t.Helper()
	for _, refused := range gateway.Refused() {
		t.Error(refused)
	}
}

func createNamespace(t *testing.T, client clientset.Interface) {
	t.Helper()
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guests}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service account is there", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(guests).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// startProcesses starts a node whose pods are processes.
func startProcesses(t *testing.T, c *cluster) {
	t.Helper()
	root, err := os.MkdirTemp("", "remote-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil { // processes run as nobody
		t.Fatal(err)
	}
	startNode(t, c.client, "remote-1", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		var config process.Config
		config.Root = root
		config.Runtime.Isolation = runtime.IsolationNamespaces
		config.Runtime.SharedNetwork = true
		config.CgroupParent = "/remote-" + strconv.Itoa(os.Getpid()) + "-" + t.Name()
		p, err := process.New(context.Background(), machine.Node{ProviderConfig: cfg, Name: cfg.Node.Name, ClusterDomain: "cluster.local"}, config)
		return nodeutil.AsProvider(p), p, err
	}, func(cfg *nodeutil.NodeConfig) error {
		cfg.SkipDownwardAPIResolution = true
		return nil
	})
}
