package nodeutil_test

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

func TestOptionsSeeEarlierOnes(t *testing.T) {
	client := fake.NewSimpleClientset()
	mux := http.NewServeMux()
	var first, last nodeutil.NodeConfig
	spy := func(into *nodeutil.NodeConfig) nodeutil.NodeOpt {
		return func(cfg *nodeutil.NodeConfig) error {
			*into = *cfg
			return nil
		}
	}
	_, err := nodeutil.NewNode("vk", making(&tiny{}),
		spy(&first),
		nil,
		nodeutil.WithClient(client),
		nodeutil.WithTLSConfig(func(cfg *tls.Config) error { cfg.ServerName = "mine"; return nil }),
		handledBy(mux),
		func(cfg *nodeutil.NodeConfig) error {
			if cfg.Client != client || cfg.Handler != http.Handler(mux) || cfg.TLSConfig.ServerName != "mine" {
				t.Errorf("the option does not see what others did before: %+v", cfg)
			}
			cfg.Handler = api.InstrumentHandler(nodeutil.WithAuth(nodeutil.NoAuth(), cfg.Handler))
			return nil
		},
		nodeutil.AttachProviderRoutes(mux),
		spy(&last),
	)
	if err != nil {
		t.Fatal(err)
	}
	if first.HTTPListenAddr != ":10250" || first.NumWorkers < 10 || first.NodeSpec.Name != "vk" || first.NodeSpec.Labels["kubernetes.io/hostname"] != "vk" {
		t.Errorf("the first option finds %+v", first)
	}
	w := httptest.NewRecorder()
	last.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods", nil))
	if w.Code != http.StatusOK {
		t.Errorf("/pods through the wrapped handler: %d %s", w.Code, w.Body)
	}
}

func TestOptionThatFails(t *testing.T) {
	cause := errors.New("no such thing")
	_, err := nodeutil.NewNode("vk", making(&tiny{}), func(*nodeutil.NodeConfig) error { return cause })
	wantError(t, err, "vk")
	if !errors.Is(err, cause) {
		t.Errorf("%v does not wrap the cause", err)
	}
}

func TestWithNodeConfigFirst(t *testing.T) {
	mux := http.NewServeMux()
	_, err := nodeutil.NewNode("vk", making(&tiny{}),
		nodeutil.WithNodeConfig(nodeutil.NodeConfig{Client: fake.NewSimpleClientset(), Handler: mux, DebugHTTP: true}),
		openTo(mux))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/pods": 200, "/debug/pprof/cmdline": 200, "/nonsense": 404} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

func TestProfilesAreOffByDefault(t *testing.T) {
	mux := http.NewServeMux()
	_, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(fake.NewSimpleClientset()), openTo(mux))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/cmdline", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("got %d", w.Code)
	}
}

func TestProviderSeesUsableNode(t *testing.T) {
	_, err := nodeutil.NewNode("vk", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		if cfg.Node.Name != "vk" || cfg.Node.Labels == nil || cfg.Node.Annotations == nil {
			t.Errorf("the provider is given %+v", cfg.Node.ObjectMeta)
		}
		if cfg.Pods == nil || cfg.ConfigMaps == nil || cfg.Secrets == nil || cfg.Services == nil {
			t.Errorf("the provider lacks a lister: %+v", cfg)
		}
		return nodeutil.AsProvider(&tiny{}), nil, nil
	}, nodeutil.WithNodeConfig(nodeutil.NodeConfig{Client: fake.NewSimpleClientset()}))
	if err != nil {
		t.Fatal(err)
	}
}

func TestNodesFromOneConfigShareNothing(t *testing.T) {
	base := nodeutil.NodeConfig{Client: fake.NewSimpleClientset()}
	base.NodeSpec.Labels = map[string]string{"zone": "z"}
	for _, name := range []string{"a", "b"} {
		_, err := nodeutil.NewNode(name, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			if len(cfg.Node.Labels) != 1 {
				t.Errorf("node %s begins with labels %v", name, cfg.Node.Labels)
			}
			cfg.Node.Labels["from"] = name
			return nodeutil.AsProvider(&tiny{}), nil, nil
		}, nodeutil.WithNodeConfig(base))
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(base.NodeSpec.Labels) != 1 {
		t.Errorf("the caller's labels became %v", base.NodeSpec.Labels)
	}
}

func TestNewNodeRefuses(t *testing.T) {
	listen := func(address string) nodeutil.NodeOpt {
		return func(cfg *nodeutil.NodeConfig) error { cfg.HTTPListenAddr = address; return nil }
	}
	none := func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) { return nil, nil, nil }
	for name, test := range map[string]struct {
		node string
		make nodeutil.NewProviderFunc
		opt  nodeutil.NodeOpt
		want string
	}{
		"address without port":   {"vk", making(&tiny{}), listen("localhost"), `cannot listen on "localhost"`},
		"port that is no number": {"vk", making(&tiny{}), listen(":kubelet-api"), `cannot listen on ":kubelet-api"`},
		"port out of range":      {"vk", making(&tiny{}), listen(":99999"), `cannot listen on ":99999"`},
		"no provider":            {"vk", none, nil, "no provider was made for node vk"},
		"no provider function":   {"vk", nil, nil, "no function"},
		"nil handler":            {"vk", making(nil), nil, "Provider"},
		"no name":                {"", making(&tiny{}), nil, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nodeutil.NewNode(test.node, test.make, nodeutil.WithClient(fake.NewSimpleClientset()), test.opt)
			wantError(t, err, test.want)
			if !errdefs.IsInvalidInput(err) {
				t.Errorf("%v is not of class InvalidInput", err)
			}
		})
	}
}

func TestProviderThatCannotBeMade(t *testing.T) {
	cause := errors.New("the cloud is closed")
	_, err := nodeutil.NewNode("vk", func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return nil, nil, cause
	}, nodeutil.WithClient(fake.NewSimpleClientset()))
	wantError(t, err, "cannot make the provider of node vk", "the cloud is closed")
	if !errors.Is(err, cause) {
		t.Errorf("%v does not wrap the cause", err)
	}
}

// What the provider leaves in cfg.Node is what gets registered.
func TestProviderChangesTheNode(t *testing.T) {
	client := fake.NewSimpleClientset(pod("mine", "other"))
	handler := &tiny{}
	n, err := nodeutil.NewNode("vk", func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		*cfg.Node = corev1.Node{}
		cfg.Node.Name = "other"
		cfg.Node.Labels = map[string]string{"mine": "yes"}
		cfg.Node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		cfg.Node.Status.NodeInfo.OperatingSystem = "windows"
		cfg.Node.Status.NodeInfo.KubeletVersion = "v9"
		cfg.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Mine"}}
		cfg.Node.Status.DaemonEndpoints.KubeletEndpoint.Port = 1234
		return nodeutil.AsProvider(handler), nil, nil
	}, nodeutil.WithClient(client), listenAnywhere, handledBy(answering("")))
	if err != nil {
		t.Fatal(err)
	}
	run(t, n)
	if err := n.WaitReady(t.Context(), deadline); err != nil {
		t.Fatal(err)
	}
	got := getNode(t, client, "other")
	for label, want := range map[string]string{"mine": "yes", "type": "", "kubernetes.io/os": "windows", "kubernetes.io/hostname": "other"} {
		if got.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, got.Labels[label], want)
		}
	}
	if len(got.Spec.Taints) != 1 || got.Status.NodeInfo.KubeletVersion != "v9" || got.Status.DaemonEndpoints.KubeletEndpoint.Port != 1234 {
		t.Errorf("registered is %+v", got)
	}
	if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Reason != "Mine" {
		t.Errorf("conditions are %+v", got.Status.Conditions)
	}
	eventually(t, "the pod of the renamed node is created", func() bool {
		_, err := handler.GetPod(t.Context(), "default", "mine")
		return err == nil
	})
	for _, action := range client.Actions() {
		if list, ok := action.(clienttesting.ListAction); ok && list.GetResource().Resource == "pods" {
			if got := list.GetListRestrictions().Fields.String(); got != "spec.nodeName=other" {
				t.Errorf("pods are listed by %q", got)
			}
		}
	}
}

// registered makes a node, and returns what NewNode has made of it.
func registered(t *testing.T, newProvider nodeutil.NewProviderFunc) corev1.NodeStatus {
	t.Helper()
	n, err := nodeutil.NewNode("vk", newProvider, nodeutil.WithClient(fake.NewSimpleClientset()))
	if err != nil {
		t.Fatal(err)
	}
	return nodeutil.SpecOf(n).Status
}

// The scheduler binds no pod to a node without capacity, and nobody reaches one
// without address.
func TestProviderThatSaysNothingHasAWholeNode(t *testing.T) {
	for name, provider := range map[string]node.NodeProvider{"none": nil, "naive": node.NaiveNodeProvider{}} {
		t.Run(name, func(t *testing.T) {
			status := registered(t, func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
				return nodeutil.AsProvider(&tiny{}), provider, nil
			})
			if got := status.Capacity.Cpu().Value(); got != int64(runtime.NumCPU()) {
				t.Errorf("cpu is %d, the machine has %d", got, runtime.NumCPU())
			}
			if status.Capacity.Memory().Value() < 1<<26 || status.Capacity.Pods().Value() != 110 {
				t.Errorf("capacity is %v", status.Capacity)
			}
			if !equality.Semantic.DeepEqual(status.Allocatable, status.Capacity) {
				t.Errorf("allocatable is %v, capacity %v", status.Allocatable, status.Capacity)
			}
			if len(status.Addresses) != 2 || net.ParseIP(status.Addresses[0].Address) == nil || status.Addresses[1].Address != "vk" {
				t.Errorf("addresses are %v", status.Addresses)
			}
		})
	}
}

// A node starts where the name of the API server cannot be resolved yet, with an address
// that is a guess, and it is logged that it is one.
func TestNodeBeforeNameResolutionIsUp(t *testing.T) {
	logged := &warnings{Logger: log.L}
	before := log.L
	log.L = logged
	t.Cleanup(func() { log.L = before })
	client, err := nodeutil.ClientsetFromEnv(kubeconfig(t, "https://"+strings.Repeat("a", 64)+".invalid")) // too long a name
	if err != nil {
		t.Fatal(err)
	}
	n, err := nodeutil.NewNode("vk", making(&tiny{}), nodeutil.WithClient(client))
	if err != nil {
		t.Fatal(err)
	}
	if got := nodeutil.SpecOf(n).Status.Addresses; len(got) != 2 || net.ParseIP(got[0].Address) == nil {
		t.Errorf("addresses are %v", got)
	}
	if logged.count("set NodeSpec.Status.Addresses") != 1 {
		t.Errorf("logged is %q, want that the address is a guess", logged.lines)
	}
}

// Nobody would ever say that a node is ready whose provider says in ConfigureNode that it is not, as many do that were
// written for the original library, and has no NodeProvider.
func TestNodeWithoutNodeProviderIsReady(t *testing.T) {
	for name, tc := range map[string]struct {
		provider node.NodeProvider
		ready    corev1.ConditionStatus
	}{"none": {nil, corev1.ConditionTrue}, "one": {node.NaiveNodeProvider{}, corev1.ConditionFalse}} {
		t.Run(name, func(t *testing.T) {
			status := registered(t, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
				cfg.Node.Status.Conditions = []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletPending", Message: "kubelet is pending."},
					{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Reason: "Full"},
				}
				return nodeutil.AsProvider(&tiny{}), tc.provider, nil
			})
			if got := status.Conditions[0]; got.Status != tc.ready {
				t.Errorf("Ready is %+v", got)
			}
			if got := status.Conditions[1]; got.Status != corev1.ConditionTrue || got.Reason != "Full" {
				t.Errorf("DiskPressure is %+v", got)
			}
		})
	}
}

// What the provider says of its node, or will say, is not guessed.
func TestProviderHasTheSayInItsNode(t *testing.T) {
	status := registered(t, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		cfg.Node.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}
		cfg.Node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
		return nodeutil.AsProvider(&tiny{}), nil, nil
	})
	if len(status.Capacity) != 1 || status.Allocatable != nil {
		t.Errorf("capacity is %v, allocatable %v", status.Capacity, status.Allocatable)
	}
	if len(status.Addresses) != 1 || status.Addresses[0].Address != "192.0.2.7" {
		t.Errorf("addresses are %v", status.Addresses)
	}
	status = registered(t, func(nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		return nodeutil.AsProvider(&tiny{}), node.NewNaiveNodeProvider(), nil
	})
	if len(status.Capacity) != 0 {
		t.Errorf("capacity is %v before the provider has set it", status.Capacity)
	}
}
