//go:build containers

package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/internal/ccigateway"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/aci/acitest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch/batchtest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/interlink/interlinktest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad/nomadtest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/stackpath/stackpathtest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/zuntest"
	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
	"github.com/virtual-kubelet/virtual-kubelet/test/slurm"
)

const (
	binaries = "../../bin"
	// everyImage is one of bin/conformance/images.tar.
	everyImage = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
	// greeting is what the containers print.
	greeting = "hello from every provider"
)

// site is what a provider runs pods on.
type site struct {
	config any
	// prints is what the logs of its containers have, if it has logs.
	prints string
	// refuses is a restart policy that it does not have.
	refuses corev1.RestartPolicy
	// left returns what is there of pods that have gone; nil where pods leave nothing that
	// could be looked at.
	left func() ([]string, error)
}

// sites make the site of each provider: real ones where there is one, else fakes that a
// client of the service takes for it.
var sites = map[string]func(t *testing.T, remote everyCluster) site{
	"aci":        aciSite,
	"azurebatch": azurebatchSite,
	"cri":        criSite("cri"),
	"eci":        eciSite,
	"fargate":    fargateSite,
	"huaweicci":  huaweicciSite,
	"interlink":  interlinkSite,
	"kubernetes": kubernetesSite,
	"machine":    machineSite,
	"mock":       func(*testing.T, everyCluster) site { return site{prints: "container"} },
	"nomad":      nomadSite,
	"process":    processSite,
	"remote":     remoteSite,
	"slurm":      slurmSite,
	"stackpath":  stackpathSite,
	"zun":        zunSite,
}

// One process runs a node of each provider. The same Deployment and the same Job run on
// each, their logs are read, and when they are deleted nothing is left.
func TestEveryProvider(t *testing.T) {
	if names := slices.Sorted(maps.Keys(sites)); !slices.Equal(names, providerNames()) {
		t.Fatalf("the binary has the providers %v, and this test sites for %v", providerNames(), names)
	}
	// What serves TLS here has the certificate of package httptest.
	authority := httptest.NewTLSServer(nil)
	authority.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw}), 0o600))
	t.Setenv("SSL_CERT_FILE", file)

	home := startEveryCluster(t)
	remote := startEveryCluster(t)
	runEveryNode(t, remote.client, "mock", nil, "--disable-taint")
	eventually(t, "the mock stands for a machine", func(ctx context.Context) error { // virtual nodes have no capacity for others
		_, err := remote.client.CoreV1().Nodes().Patch(ctx, "mock", types.MergePatchType, []byte(`{"metadata": {"labels": {"type": null}}}`), metav1.PatchOptions{})
		return err
	})
	var made sync.Map // the providers, by name
	for name, entry := range providers {
		newProvider := entry.new
		entry.new = func(init providerInit) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
			p, n, closer, err := newProvider(init)
			made.Store(name, p)
			if partial, ok := p.(interface {
				Unwrap() node.PodLifecycleHandler
			}); ok {
				made.Store(name, partial.Unwrap())
			}
			return p, n, closer, err
		}
		providers[name] = entry
	}
	nodes := map[string]*onSite{}
	for name, newSite := range sites {
		nodes[name] = &onSite{site: newSite(t, remote), client: home.client, provider: name}
		runEveryNode(t, home.client, name, nodes[name].config)
	}
	made.Range(func(name, p any) bool {
		if p, ok := p.(interface {
			Unsupported(*corev1.Pod) (missing, ignored []string)
		}); ok && name != "kubernetes" { // of which the configuration decides
			compareFields(t, name.(string), mapped(p.Unsupported))
		}
		return true
	})
	t.Run("together", func(t *testing.T) { // ends when all have
		for name, s := range nodes {
			t.Run(name+" Deployment", func(t *testing.T) {
				t.Parallel()
				s.runDeployment(t)
			})
			t.Run(name+" Job", func(t *testing.T) {
				t.Parallel()
				s.runJob(t)
			})
		}
	})
	for name, s := range nodes {
		if s.left != nil {
			eventually(t, "nothing is left of "+name, func(context.Context) error { return s.nothingLeft() })
		}
	}
}

// compareFields compares what of pods a provider runs with what its file says, which
// docs/providers.md shows. With -update it is written.
func compareFields(t *testing.T, provider string, found map[string]string) {
	t.Helper()
	file := filepath.Join("../../providers", provider, fieldsFile)
	text, err := json.MarshalIndent(found, "", "  ")
	must(t, err)
	if *update {
		must(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(text)+"\n" {
		t.Errorf("%s is not what the provider says, %s (%v): run this test, and then TestProvidersPage, with -update", file, text, err)
	}
}

// must ends a test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// everyCluster is a control plane with its administrator's client.
type everyCluster struct {
	*controlplane.ControlPlane
	client kubernetes.Interface
}

func startEveryCluster(t *testing.T) everyCluster {
	t.Helper()
	c, err := controlplane.Start(t.Context(), controlplane.Options{Binary: filepath.Join(binaries, "controlplane")})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	client, err := kubernetes.NewForConfig(c.Config())
	must(t, err)
	return everyCluster{c, client}
}

// onSite is a node of a provider.
type onSite struct {
	site
	client   kubernetes.Interface
	provider string
}

// runEveryNode runs a node until the test ends, as the command does. The node's name is that
// of its provider.
func runEveryNode(t *testing.T, client kubernetes.Interface, provider string, config any, more ...string) {
	t.Helper()
	args := append([]string{"--provider", provider, "--nodename", provider, "--port", "0", "--listen-address", "127.0.0.1"}, more...)
	if config != nil {
		args = append(args, "--provider-config", writeEvery(t, config))
	}
	o := parsed(t, args...)
	auth, runAuth, err := newAuth(client, o)
	must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runAuth(ctx) })
	group.Go(func() error {
		v := virtualNode{options: o, client: client, address: "127.0.0.1", auth: auth, standby: newStandby()}
		return v.run(ctx, time.Now())
	})
	t.Cleanup(func() {
		stop()
		if err := group.Wait(); err != nil {
			t.Errorf("node %s: %v", provider, err)
		}
	})
	eventually(t, "node "+provider+" is ready", func(ctx context.Context) error {
		n, err := client.CoreV1().Nodes().Get(ctx, provider, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}):
			return fmt.Errorf("its conditions are %v", n.Status.Conditions)
		}
		return nil
	})
}

// writeEvery writes a configuration, and returns the name of its file.
func writeEvery(t *testing.T, config any) (file string) {
	t.Helper()
	text, err := json.Marshal(config)
	must(t, err)
	file = filepath.Join(t.TempDir(), "provider.json")
	must(t, os.WriteFile(file, text, 0o600))
	return file
}

// runDeployment runs pods that go on.
func (s *onSite) runDeployment(t *testing.T) {
	name := s.provider + "-web"
	deployments := s.client.AppsV1().Deployments(metav1.NamespaceDefault)
	replicas, labels := int32(2), map[string]string{"app": name}
	_, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: s.template(labels, corev1.RestartPolicyAlways, "echo "+greeting+"; exec sleep 1000"),
		},
	}, metav1.CreateOptions{})
	must(t, err)
	if s.refuses == corev1.RestartPolicyAlways {
		s.awaitRefusal(t, "app="+name)
	} else {
		eventually(t, "the Deployment is available", func(ctx context.Context) error {
			d, err := deployments.Get(ctx, name, metav1.GetOptions{})
			if err == nil && d.Status.AvailableReplicas != replicas {
				err = fmt.Errorf("%d of %d pods are available: %v", d.Status.AvailableReplicas, replicas, s.statuses(ctx, "app="+name))
			}
			return err
		})
		s.readLogs(t, "app="+name)
	}
	must(t, deployments.Delete(t.Context(), name, metav1.DeleteOptions{}))
	s.awaitNothing(t, "app="+name)
}

// runJob runs a pod that ends.
func (s *onSite) runJob(t *testing.T) {
	name := s.provider + "-once"
	jobs := s.client.BatchV1().Jobs(metav1.NamespaceDefault)
	_, err := jobs.Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Template: s.template(map[string]string{"app": name}, corev1.RestartPolicyNever, "echo "+greeting)},
	}, metav1.CreateOptions{})
	must(t, err)
	if s.refuses == corev1.RestartPolicyNever {
		s.awaitRefusal(t, "app="+name)
	} else {
		eventually(t, "the Job is complete", func(ctx context.Context) error {
			job, err := jobs.Get(ctx, name, metav1.GetOptions{})
			if err == nil && job.Status.Succeeded != 1 {
				err = fmt.Errorf("it is not: %v", s.statuses(ctx, "app="+name))
			}
			return err
		})
		s.readLogs(t, "app="+name)
	}
	policy := metav1.DeletePropagationBackground
	must(t, jobs.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}))
	s.awaitNothing(t, "app="+name)
}

// statuses returns those of pods, for people.
func (s *onSite) statuses(ctx context.Context, selector string) (texts []string) {
	pods, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return []string{err.Error()}
	}
	for i := range pods.Items {
		text, _ := json.Marshal(pods.Items[i].Status)
		texts = append(texts, string(text))
	}
	return texts
}

// template is that of pods for the node.
func (s *onSite) template(labels map[string]string, policy corev1.RestartPolicy, script string) corev1.PodTemplateSpec {
	grace, token := int64(2), false
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{node.LabelProvider: s.provider}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			RestartPolicy: policy, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &token,
			Containers: []corev1.Container{{Name: "main", Image: everyImage, Command: []string{"sh", "-c", script}}},
		},
	}
}

// readLogs reads the log of each pod as kubectl does.
func (s *onSite) readLogs(t *testing.T, selector string) {
	t.Helper()
	if !slices.Contains(nodeutil.Capabilities(providers[s.provider].sample), "logs") {
		return
	}
	pods := s.client.CoreV1().Pods(metav1.NamespaceDefault)
	eventually(t, "the logs are right", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is no pod")
		}
		for i := range list.Items {
			text, logErr := pods.GetLogs(list.Items[i].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if logErr == nil && !strings.Contains(string(text), s.prints) {
				logErr = fmt.Errorf("the log of %s is %q, want %q in it", list.Items[i].Name, text, s.prints)
			}
			err = errors.Join(err, logErr)
		}
		return err
	})
}

// awaitRefusal waits until a pod has failed, since the provider does not take its restart
// policy, and says so.
func (s *onSite) awaitRefusal(t *testing.T, selector string) {
	t.Helper()
	eventually(t, "a pod is refused", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if status := &list.Items[i].Status; status.Phase == corev1.PodFailed && strings.Contains(status.Message, "restartPolicy") {
				return nil
			}
		}
		return fmt.Errorf("none of %d pods was", len(list.Items))
	})
}

// awaitNothing waits until no pod is left in the cluster.
func (s *onSite) awaitNothing(t *testing.T, selector string) {
	t.Helper()
	eventually(t, "no pod is left", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are in the cluster", len(list.Items))
		}
		return err
	})
}

// nothingLeft returns an error if something is left behind the provider.
func (s *onSite) nothingLeft() error {
	left, err := s.left()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("there is %v", left)
	}
	return err
}

func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		err := check(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is not so that %s: %v", what, err)
		}
	}
}

// serviceOf is the site of a provider whose service is a fake on a World. Its containers do what
// those of the Deployment and the Job do.
func serviceOf(t *testing.T, w *grouptest.World, config any) site {
	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	t.Cleanup(func() {
		stop()
		_ = group.Wait()
	})
	group.Go(func() error {
		for seen := map[string]bool{}; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			for _, u := range w.Units(func(u *grouptest.Unit) bool { return u.Phase == podgroup.Running && !seen[u.ID] }) {
				seen[u.ID] = true
				pod := u.Tags[podgroup.TagPodName]
				_ = w.Print(pod, "main", greeting) // it may have been deleted meanwhile
				if strings.Contains(pod, "-once") {
					_ = w.Exit(pod, "main", 0)
				}
			}
		}
		return nil
	})
	return site{config: config, prints: greeting, left: func() (left []string, err error) {
		for _, u := range w.Units(nil) {
			left = append(left, fmt.Sprintf("unit %s (%v)", u.ID, u.Phase))
		}
		return left, nil
	}}
}

func serveEvery(t *testing.T, handler http.Handler) (url string) {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func serveEveryTLS(t *testing.T, handler http.Handler) (url string) {
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func newWorld() *grouptest.World { return grouptest.New(200 * time.Millisecond) }

func azurebatchSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	fake := batchtest.New(w)
	fake.Containers, fake.Properties = true, map[string]any{"taskSlotsPerNode": 64}
	made := serviceOf(t, w, map[string]any{
		"accountName": batchtest.Account, "accountKey": batchtest.Key, "poolID": batchtest.Pool, "clusterName": "home",
		"accountEndpoint": serveEveryTLS(t, fake),
	})
	made.refuses = corev1.RestartPolicyAlways
	return made
}

// criSite is a node's directory beside a containerd, which all such nodes of a test share.
func criSite(name string) func(*testing.T, everyCluster) site {
	return func(t *testing.T, _ everyCluster) site {
		if everyContainerd == nil {
			c, err := containerd.Start(t.Context(), containerd.Options{
				Binary: filepath.Join(binaries, "containerd-up"), SandboxImage: "localhost/pause:latest",
				Images: []string{filepath.Join(binaries, "conformance", "images.tar")},
			})
			must(t, err)
			everyContainerd = c
			t.Cleanup(func() { must(t, c.Stop()) })
		}
		root := filepath.Join(everyContainerd.Dir(), name)
		return site{
			config: map[string]any{
				"endpoint": everyContainerd.Endpoint(), "root": root, "logRoot": filepath.Join(root, "logs"), "cgroupParent": "/every-provider-" + name,
				"evictionHard": map[string]string{}, "imageGCHighThresholdPercent": 100, // regardless of the free space of the machine's disk
			},
			prints: greeting,
			left:   func() ([]string, error) { return filepath.Glob(filepath.Join(root, "pods", "*")) },
		}
	}
}

var everyContainerd *containerd.Containerd

func processSite(t *testing.T, _ everyCluster) site {
	root := t.TempDir()
	return site{
		config: map[string]any{"root": root, "logRoot": filepath.Join(root, "logs"), "runtime": map[string]any{"sharedNetwork": true}, "evictionHard": map[string]string{}},
		prints: greeting,
		left:   func() ([]string, error) { return filepath.Glob(filepath.Join(root, "pods", "*")) },
	}
}

// machineSite has machines that are network namespaces of this one.
func machineSite(t *testing.T, _ everyCluster) site {
	script, err := filepath.Abs("../../providers/machine/testdata/netns-machines")
	must(t, err)
	binary, err := filepath.Abs(filepath.Join(binaries, "virtual-kubelet"))
	must(t, err)
	dir, err := os.MkdirTemp("", "machines-") // through which all users can pass
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() {
		if out, err := exec.Command(script, binary, dir, "clean").CombinedOutput(); err != nil {
			t.Errorf("cannot clean up: %v: %s", err, out)
		}
		must(t, os.RemoveAll(dir))
	})
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	must(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	must(t, listener.Close())
	return site{
		config: map[string]any{
			"cluster": "home", "stateDir": t.TempDir(), "refresh": "1s",
			"exec":      map[string]any{"command": []string{script, binary, dir}},
			"bootstrap": map[string]any{"listen": fmt.Sprintf("0.0.0.0:%d", port), "url": fmt.Sprintf("https://10.231.0.1:%d", port)},
		},
		prints: greeting,
		left:   func() ([]string, error) { return filepath.Glob(filepath.Join(dir, "*", "pid")) },
	}
}

func eciSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	return serviceOf(t, w, map[string]any{
		"clusterName": "home", "region": ecitest.Region, "accessKey": ecitest.AccessKey, "secretKey": ecitest.SecretKey,
		"secureGroup": "sg-1", "vSwitch": "vsw-1", "cacheFor": "1s", "endpoint": serveEvery(t, ecitest.On(w)),
	})
}

func aciSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	service := httptest.NewTLSServer(acitest.New(w))
	t.Cleanup(service.Close)
	t.Setenv("IDENTITY_ENDPOINT", service.URL+"/identity")
	t.Setenv("IDENTITY_HEADER", "header")
	return serviceOf(t, w, map[string]any{
		"subscriptionID": acitest.Subscription, "resourceGroup": acitest.ResourceGroup, "region": acitest.Region, "endpoint": service.URL,
		"clusterName": "home", "vnetName": "net", "subnetName": "groups",
	})
}

func fargateSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	t.Setenv("AWS_ACCESS_KEY_ID", ecstest.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	service := ecstest.New(w)
	t.Setenv("AWS_ENDPOINT_URL", serveEvery(t, service))
	made := serviceOf(t, w, map[string]any{
		"region": "eu-west-1", "clusterName": ecstest.Cluster, "subnets": []string{"subnet-12345678"}, "securityGroups": []string{"sg-12345678"},
		"executionRoleArn": "arn:aws:iam::123456789012:role/ecsTaskExecutionRole", "cloudWatchLogGroupName": "pods",
	})
	made.left = func() ([]string, error) {
		left := slices.Concat(service.Definitions(), service.Inactive(), slices.Sorted(maps.Keys(service.Secrets())))
		for _, u := range w.Units(func(u *grouptest.Unit) bool { return !u.Over() }) { // ECS shows the others for an hour
			left = append(left, fmt.Sprintf("task %s (%v)", u.ID, u.Phase))
		}
		return left, nil
	}
	return made
}

func interlinkSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	plugin := serveEvery(t, &interlinktest.Plugin{World: w, Unknown: interlinktest.AsStateless})
	url := serveEvery(t, &interlinktest.Server{OneObject: true, Plugin: &http.Client{Transport: toHost(strings.TrimPrefix(plugin, "http://"))}})
	colon := strings.LastIndexByte(url, ':')
	return serviceOf(t, w, map[string]any{"InterlinkURL": url[:colon], "InterlinkPort": url[colon+1:], "PodIP": "192.0.2.9"})
}

// toHost sends all requests to one host.
type toHost string

func (h toHost) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", string(h)
	return http.DefaultTransport.RoundTrip(r)
}

// kubernetesSite is a namespace of the other cluster.
func kubernetesSite(t *testing.T, remote everyCluster) site {
	return site{
		config: map[string]any{
			"apiVersion": "kubernetes.virtual-kubelet.io/v1", "kind": "RemoteCluster", "cluster": "home", "remote": map[string]any{"kubeconfig": remote.Kubeconfig()},
		},
		prints: "container", left: func() ([]string, error) { return remote.pods(t, metav1.NamespaceDefault) },
	}
}

// huaweicciSite is another namespace of it, behind a gateway that verifies signatures.
func huaweicciSite(t *testing.T, remote everyCluster) site {
	const project = "guests"
	_, err := remote.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: project}}, metav1.CreateOptions{})
	must(t, err)
	gateway := ccigateway.Start(t, remote.Config(), ccigateway.Options{})
	gateway.Bind(project)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, gateway.CA, 0o600))
	t.Setenv("CCI_APP_KEY", ccigateway.AccessKey)
	t.Setenv("CCI_APP_SECRET", ccigateway.SecretKey)
	return site{
		config: map[string]any{
			"Project": project, "Region": ccigateway.Region, "Endpoint": gateway.URL, "CAFile": ca, "ProjectID": ccigateway.ProjectID, "API": "v1", "Cluster": "home",
		},
		prints: "container", left: func() ([]string, error) { return remote.pods(t, project) },
	}
}

func (c everyCluster) pods(t *testing.T, namespace string) (names []string, err error) {
	list, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	for i := range list.Items {
		names = append(names, "pod "+list.Items[i].Name)
	}
	return names, err
}

func nomadSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	return serviceOf(t, w, map[string]any{"address": serveEvery(t, nomadtest.New(w)), "token": nomadtest.Token, "clusterName": "home"})
}

// remoteSite is a provider cri in a process of its own, as it were.
func remoteSite(t *testing.T, c everyCluster) site {
	served := criSite("remote")(t, c)
	socket := filepath.Join(t.TempDir(), "provider.sock")
	o := serveProviderOptions{
		providerFlags: providerFlags{provider: "cri", providerConfig: writeEvery(t, served.config), logLevel: "info", logFormat: "text"},
		listenFlags:   listenFlags{listen: "unix://" + socket}, node: "remote", clusterDomain: "cluster.local",
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var group errgroup.Group
	group.Go(func() error { return o.run(ctx) })
	t.Cleanup(func() {
		stop()
		must(t, group.Wait())
	})
	return site{config: map[string]any{"address": "unix://" + socket}, prints: greeting, left: served.left}
}

// slurmSite is a real Slurm, whose jobs run processes.
func slurmSite(t *testing.T, _ everyCluster) site {
	c := slurm.Start(t)
	return site{
		config: map[string]any{
			"cluster": "home", "runtime": "none", "root": filepath.Join(c.Dir, "pods"), "environment": map[string]string{"SLURM_CONF": c.Conf},
			"partition": "normal", "refresh": "500ms",
		},
		prints: greeting,
		left:   func() ([]string, error) { return filepath.Glob(filepath.Join(c.Dir, "pods", "default-*")) },
	}
}

func stackpathSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	made := serviceOf(t, w, map[string]any{
		"stack_id": stackpathtest.StackID, "client_id": "id", "client_secret": stackpathtest.ClientSecret, "city_code": "dfw",
		"base_url": strings.TrimPrefix(serveEveryTLS(t, stackpathtest.New(w)), "https://"),
	})
	made.refuses = corev1.RestartPolicyNever
	return made
}

func zunSite(t *testing.T, _ everyCluster) site {
	w := newWorld()
	return serviceOf(t, w, map[string]any{
		"authURL": serveEvery(t, zuntest.New(w)) + "/v3", "username": zuntest.User, "password": zuntest.Password, "domainID": "default",
		"projectName": zuntest.Project, "region": zuntest.Region, "clusterName": "home",
	})
}
