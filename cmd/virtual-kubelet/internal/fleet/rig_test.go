package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // which wait in real time
	os.Exit(m.Run())
}

// errorLog keeps the errors that are logged, and beside them what is logged as information.
type errorLog struct {
	log.Logger
	mu            *sync.Mutex
	logged, infos *[]string
	err           error
}

func (l errorLog) WithField(string, any) log.Logger { return l }
func (l errorLog) WithFields(log.Fields) log.Logger { return l }
func (l errorLog) WithError(err error) log.Logger   { l.err = err; return l }
func (l errorLog) Info(args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.infos != nil {
		*l.infos = append(*l.infos, fmt.Sprint(args...))
	}
}
func (l errorLog) Error(args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.logged = append(*l.logged, fmt.Sprint(args...)+": "+fmt.Sprint(l.err))
}

// poolsRig is a process with a file of pools, in virtual time.
type poolsRig struct {
	t      *testing.T
	file   string
	client *fake.Clientset
	fleet  *Fleet

	newProvider func(ctx context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error)

	keepNodes atomic.Bool // has the API refuse to delete Nodes

	mu     sync.Mutex
	errors []string // that were logged
	infos  []string // that were logged
}

func poolsBubble(t *testing.T, fields string, test func(r *poolsRig)) {
	t.Helper()
	poolsBubbleAfter(t, func(*poolsRig) {}, fields, test)
}

// poolsBubbleAfter calls before, with the API, before the process starts.
func poolsBubbleAfter(t *testing.T, before func(r *poolsRig), fields string, test func(r *poolsRig)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pools.yaml")
	synctest.Test(t, func(t *testing.T) {
		r := &poolsRig{t: t, file: file, client: fake.NewSimpleClientset(), newProvider: newMock}
		fakeapi.React(&r.client.Fake, "delete", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return r.keepNodes.Load(), nil, errors.New("no")
		})
		before(r)
		r.write(fields)
		r.fleet = r.newFleet(file, 0)
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), errorLog{Logger: log.L, mu: &r.mu, logged: &r.errors, infos: &r.infos}))
		done := make(chan error)
		go func() { done <- r.fleet.Run(ctx) }()
		r.pass()
		test(r)
		cancel()
		if err := errors.Join(<-done, r.fleet.Close()); err != nil {
			t.Error(err)
		}
	})
}

// newFleet is a process with that file, whose nodes are those of the mock provider.
func (r *poolsRig) newFleet(file string, shards int) *Fleet {
	r.t.Helper()
	f, err := New(r.t.Context(), Config{
		Nodes:       nodeutil.FleetConfig{Client: r.client},
		NodeConfig:  r.nodeConfig,
		NewProvider: r.newProvider,
		File:        NewFile(mockOptions(file), nil),
		Shards:      nodeutil.Shards{Count: shards},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *poolsRig) nodeConfig(n nodepools.Node, adopt bool) (config nodeutil.NodeConfig, err error) {
	config.NodeSpec.Name, config.NodeSpec.Labels = n.Name, map[string]string{"type": "virtual-kubelet", node.LabelProvider: n.Provider}
	config.NodeSpec.Status.NodeInfo.OperatingSystem = n.OS
	config.Claim, err = node.NewClaim(node.ClaimConfig{
		Node:     n.Name,
		Nodes:    r.client.CoreV1().Nodes(),
		Provider: n.Provider,
		Adopt:    adopt,
		Leases:   nodeutil.NodeLeaseV1Client(r.client),
		Identity: node.Identity{ID: "rig"},
		Pods:     func(context.Context) ([]corev1.Pod, error) { return nil, nil },
	})
	return config, err
}

// mockOptions are those of a file whose pools have the mock provider.
func mockOptions(file string) nodepools.Options {
	check := func(config []byte) error {
		_, err := mock.ParseConfig(config, "")
		return err
	}
	return nodepools.Options{
		File:      file,
		Providers: map[string]nodepools.Provider{"mock": {Check: check}, "other": {Check: check}},
		OS:        "linux",
		Provider:  "mock",
		Taints:    func(string) []corev1.Taint { return nil },
	}
}

// newMock makes a mock provider whose journal is a file.
func newMock(_ context.Context, n nodepools.Node, cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, io.Closer, error) {
	config, err := mock.ParseConfig([]byte(n.ProviderConfig), n.Name)
	if err != nil {
		return nil, nil, nil, err
	}
	config.OperatingSystem = n.OS
	var journal *os.File
	var opts []mock.Option
	if config.Journal != "" {
		if journal, err = os.OpenFile(config.Journal, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, nil, nil, fmt.Errorf("cannot open the journal: %w", err)
		}
		opts = append(opts, mock.WithJournal(journal))
	}
	provider, err := mock.New(config, opts...)
	if err != nil {
		return nil, nil, nil, err
	}
	provider.ConfigureNode(context.Background(), cfg.Node)
	return provider, provider, closer(func() error {
		err := provider.Close()
		if journal != nil {
			err = errors.Join(err, journal.Close())
		}
		return err
	}), nil
}

type closer func() error

func (c closer) Close() error { return c() }

func (r *poolsRig) write(fields string) { r.t.Helper(); writePools(r.t, r.file, fields) }

// writePools writes a file of node pools; fields are what it holds beside its type.
func writePools(t *testing.T, path, fields string) {
	t.Helper()
	content := "{apiVersion: virtual-kubelet.io/v1alpha1, kind: NodePools, " + strings.TrimPrefix(fields, "{") + "\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// bind creates a pod that is bound to a node.
func (r *poolsRig) bind(name, node string) {
	r.t.Helper()
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}}}
	pod.Namespace, pod.Name, pod.UID = "default", name, types.UID(name)
	if _, err := r.client.CoreV1().Pods(pod.Namespace).Create(r.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// pass lets enough time pass for a change to be applied.
func (r *poolsRig) pass() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

// passStopped lets as much time pass as is waited before a Node is deleted.
func (r *poolsRig) passStopped() {
	time.Sleep(stoppedTime + retryInterval)
	r.pass()
}

// want compares the Nodes there are with those wanted, by name: whether they are
// ready, the label tier, and the CPUs.
func (r *poolsRig) want(what string, want map[string]string) {
	r.t.Helper()
	got := map[string]string{}
	for name, n := range r.nodes() {
		ready := "gone"
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready = "ready"
			}
		}
		got[name] = strings.Join(strings.Fields(ready+" "+n.Labels["tier"]+" "+n.Status.Capacity.Cpu().String()), " ")
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (r *poolsRig) nodes() map[string]corev1.Node {
	r.t.Helper()
	list, err := r.client.CoreV1().Nodes().List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	nodes := map[string]corev1.Node{}
	for _, n := range list.Items {
		nodes[n.Name] = n
	}
	return nodes
}

// wantErrors compares the errors that were logged since it was last called: each
// has to have one of these.
func (r *poolsRig) wantErrors(what string, want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errors) != len(want) {
		r.t.Errorf("%s: logged %q, want %q", what, r.errors, want)
	} else {
		for i, err := range r.errors {
			if !strings.Contains(err, want[i]) {
				r.t.Errorf("%s: logged %q, want %q", what, err, want[i])
			}
		}
	}
	r.errors = nil
}
