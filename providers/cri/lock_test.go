package cri

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
)

// Two processes do not run the same pods: neither those of a fleet, which make the provider before the
// lease of its node keeps one of them away, nor those whose pods come from elsewhere, without a lease.
func TestOneProcessHasTheRoot(t *testing.T) {
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprint("sent ", sent), func(t *testing.T) { testOneProcessHasTheRoot(t, sent) })
	}
}

func testOneProcessHasTheRoot(t *testing.T, sent bool) {
	root := t.TempDir()
	begin := func() (*Provider, error) {
		var cfg Config
		cfg.Endpoint, cfg.Root, cfg.LogRoot = "unix://"+filepath.Join(root, "no.sock"), filepath.Join(root, "node"), filepath.Join(root, "logs")
		n := testNode()
		n.Sent = sent
		return New(t.Context(), n, cfg)
	}
	first, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin(); err == nil || !strings.Contains(err.Error(), "is in use by another virtual-kubelet: end that one") {
		t.Errorf("got %v, want what to do", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// testNode is a node of a cluster without objects.
func testNode() machine.Node {
	return machine.Node{Name: "n1", ClusterDomain: "cluster.local", ProviderConfig: nodeutil.ProviderConfig{
		Node:     &corev1.Node{},
		Services: corev1listers.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})),
		Objects:  noObjects{},
		Client:   fake.NewClientset(),
		Events:   record.NewFakeRecorder(1000),
		HostIPs:  func() []string { return []string{"192.0.2.1"} },
	}}
}

// noObjects has no ConfigMap and no Secret; the tests' pods name none.
type noObjects struct{ node.ObjectSource }

func (noObjects) Follow(*corev1.Pod)                                                {}
func (noObjects) Forget(types.UID)                                                  {}
func (noObjects) Subscribe(func(kind, namespace, name string)) (unsubscribe func()) { return func() {} }
