package main

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// illProvider is a node provider that is not well.
type illProvider struct{ node.NaiveNodeProvider }

func (illProvider) Ping(context.Context) error { return errors.New("the account has no credit") }

// A node is ready when its Ready condition is True: a provider that is not well counts
// for --startup-timeout, with its reason.
func TestStartupTimeoutNamesTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		n, err := nodeutil.NewNode("vk", func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			return nodeutil.AsProvider(&noPods{}), illProvider{}, nil
		}, nodeutil.WithClient(client))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- n.Run(ctx) }()
		v := &virtualNode{options: &options{nodeName: "vk", startupTimeout: time.Minute}}
		err = v.awaitReady(ctx, n, time.Now())
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the account has no credit") {
			t.Errorf("got %v, want that it took too long, and why", err)
		}
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// What keeps a newcomer's first node from starting is named at once, with what to do,
// also as the reason that the start took too long.
func TestWhatKeepsTheNodeFromStartingIsNamed(t *testing.T) {
	nodes := corev1.Resource("nodes")
	for name, c := range map[string]struct {
		answer error
		says   []string
	}{
		"credentials": {apierrors.NewUnauthorized("Unauthorized"), []string{"does not accept the credentials", "may have expired"}},
		"rights":      {apierrors.NewForbidden(nodes, "vk", errors.New("no")), []string{"does not allow", "config print-rbac", `nodes "vk" is forbidden`}},
		"no server":   {&url.Error{Op: "Get", URL: "https://10.0.0.1:6443", Err: syscall.ECONNREFUSED}, []string{"cannot be reached", "whether its address is right", "https://10.0.0.1:6443", "refused"}},
		"an outage":   {apierrors.NewInternalError(errors.New("etcd has no leader")), []string{"etcd has no leader"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				fakeapi.React(&client.Fake, "*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.answer })
				var o options
				o.nodeName, o.provider, o.startupTimeout, o.identity = "vk", "mock", 5*time.Second, node.Identity{ID: "a"}
				v := &virtualNode{options: &o, client: client}
				claim, err := v.newClaim(false)
				if err != nil {
					t.Fatal(err)
				}
				err = v.acquire(t.Context(), claim, time.Now())
				if !errors.Is(err, c.answer) {
					t.Fatalf("got %v, want one that wraps %v", err, c.answer)
				}
				for _, text := range c.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("got %v, want it to say %q", err, text)
					}
				}
			})
		})
	}
}

// A second process for a node ends in time, too, and says who has the node.
func TestSecondProcessAndStartupTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		process := func(id string) *virtualNode {
			return &virtualNode{client: client, options: &options{nodeName: "vk", provider: "mock", enableNodeLease: true, startupTimeout: 20 * time.Second, identity: node.Identity{ID: id}}}
		}
		first, err := process("first").newClaim(false)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := process("second")
		claim, err := second.newClaim(false)
		if err != nil {
			t.Fatal(err)
		}
		err = second.acquire(t.Context(), claim, time.Now())
		if !errors.Is(err, node.ErrNodeHeld) || !strings.Contains(err.Error(), "first") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want who has the node", err)
		}
		if lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "vk", metav1.GetOptions{}); err != nil || lease.Annotations["virtual-kubelet.io/holder"] != "first" {
			t.Errorf("the lease is %v (%v), want that of the first", lease, err)
		}
	})
}

// noPods is a provider that has no pods.
type noPods struct{}

func (noPods) CreatePod(context.Context, *corev1.Pod) error { return nil }
func (noPods) UpdatePod(context.Context, *corev1.Pod) error { return nil }
func (noPods) DeletePod(context.Context, *corev1.Pod) error { return nil }
func (noPods) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return nil, nil
}
func (noPods) GetPodStatus(context.Context, string, string) (*corev1.PodStatus, error) {
	return nil, nil
}
func (noPods) GetPods(context.Context) ([]*corev1.Pod, error) { return nil, nil }
