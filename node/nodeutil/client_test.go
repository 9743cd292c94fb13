package nodeutil_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// nowhere sees to it that no configuration is found by accident.
func nowhere(t *testing.T) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
}

func kubeconfig(t *testing.T, server string) (path string) {
	t.Helper()
	return write(t, "kubeconfig", []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "`+server+`"}}]
users: [{name: u, user: {token: t}}]
`))
}

func TestClientsetFromEnv(t *testing.T) {
	host := func(t *testing.T, path string) string {
		t.Helper()
		client, err := nodeutil.ClientsetFromEnv(path)
		if err != nil {
			t.Fatal(err)
		}
		return client.CoreV1().RESTClient().Get().URL().Host
	}
	t.Run("file", func(t *testing.T) {
		nowhere(t)
		t.Setenv("KUBECONFIG", kubeconfig(t, "http://env.example.org"))
		if got := host(t, kubeconfig(t, "http://file.example.org")); got != "file.example.org" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("variable", func(t *testing.T) {
		nowhere(t)
		t.Setenv("KUBECONFIG", kubeconfig(t, "http://env.example.org"))
		if got := host(t, ""); got != "env.example.org" {
			t.Errorf("got %s", got)
		}
	})
	fails := func(t *testing.T, path string, want ...string) {
		t.Helper()
		_, err := nodeutil.ClientsetFromEnv(path)
		wantError(t, err, want...)
		if !errdefs.IsInvalidInput(err) {
			t.Errorf("%v is not of class InvalidInput", err)
		}
	}
	t.Run("missing file does not lead to another cluster", func(t *testing.T) {
		nowhere(t)
		t.Setenv("KUBECONFIG", kubeconfig(t, "http://env.example.org"))
		fails(t, "/no/such/kubeconfig", `no kubeconfig at "/no/such/kubeconfig"`)
	})
	t.Run("nothing", func(t *testing.T) {
		nowhere(t)
		fails(t, "", "KUBECONFIG", "home directory", "service account")
	})
	t.Run("rubbish", func(t *testing.T) {
		nowhere(t)
		path := write(t, "kubeconfig", []byte("{"))
		fails(t, path, path)
	})
	for name, content := range map[string]string{
		"no current context": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://other.example.org\"}}]\n",
		"empty":              "",
	} {
		t.Run(name+" does not lead to the pod's service account", func(t *testing.T) {
			nowhere(t)
			t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
			t.Setenv("KUBERNETES_SERVICE_PORT", "443")
			path := write(t, "kubeconfig", []byte(content))
			fails(t, path, path, "names no cluster", "current-context")
			_, err := nodeutil.NewNodeIdentity(t.Context(), nodeutil.NodeIdentityConfig{NodeName: "vk", BootstrapKubeconfig: path, CertDir: t.TempDir()})
			wantError(t, err, path, "names no cluster", "current-context")
		})
	}
	t.Run("NewNode without a client", func(t *testing.T) {
		nowhere(t)
		_, err := nodeutil.NewNode("vk", making(&tiny{}), func(cfg *nodeutil.NodeConfig) error {
			cfg.KubeconfigPath = "/no/such/kubeconfig"
			return nil
		})
		wantError(t, err, "/no/such/kubeconfig")
	})
}

func TestPodInformerFilter(t *testing.T) {
	client := fake.NewSimpleClientset()
	selectors := make(chan string, 10)
	fakeapi.React(&client.Fake, "list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		selectors <- action.(clienttesting.ListAction).GetListRestrictions().Fields.String()
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, nodeutil.PodInformerFilter("vk"))
	factory.Core().V1().Pods().Informer()
	ctx := testContext(t)
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(ctx.Done())
	if got := <-selectors; got != "spec.nodeName=vk" {
		t.Errorf("got %q", got)
	}
	close(stop)
	factory.Shutdown()
}

func TestNodeLeaseV1Client(t *testing.T) {
	client := fake.NewSimpleClientset()
	_, _ = nodeutil.NodeLeaseV1Client(client).Get(t.Context(), "vk", metav1.GetOptions{})
	if got := client.Actions()[0].GetNamespace(); got != corev1.NamespaceNodeLease {
		t.Errorf("got %s", got)
	}
}

func TestPodFilters(t *testing.T) {
	vk, other := nodeutil.FilterPodsForNodeName("vk"), nodeutil.FilterPodsForNodeName("other")
	for _, test := range []struct {
		name   string
		passes bool
		want   bool
	}{
		{"mine", vk(t.Context(), pod("p", "vk")), true},
		{"another's", vk(t.Context(), pod("p", "other")), false},
		{"nobody's", vk(t.Context(), pod("p", "")), false},
		{"no filter", nodeutil.PodFilters()(t.Context(), pod("p", "vk")), true},
		{"twice", nodeutil.PodFilters(vk, vk)(t.Context(), pod("p", "vk")), true},
		{"one of two", nodeutil.PodFilters(vk, other)(t.Context(), pod("p", "vk")), false},
	} {
		if test.passes != test.want {
			t.Errorf("%s: got %v", test.name, test.passes)
		}
	}
}
