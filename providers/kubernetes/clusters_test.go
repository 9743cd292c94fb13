//go:build integration

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

const (
	controlPlane = "../../bin/controlplane"
	deploy       = "../../deploy"
	// patience is the timeout of a test for what should take a moment.
	patience = 2 * time.Minute
	// homeNode is the node of deploy/kubernetes-rbac.yaml.
	homeNode = "virtual-kubelet"
)

// cluster is a control plane, with an administrator's client.
type cluster struct {
	*controlplane.ControlPlane
	client clientset.Interface
	t      *testing.T
}

// startCluster starts a control plane, with further flags of its API server.
func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := controlplane.Start(ctx, controlplane.Options{Binary: controlPlane, Args: map[string][]string{"kube-apiserver": flags}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &cluster{c, newClient(t, c.Config()), t}
}

func newClient(t *testing.T, config *rest.Config) clientset.Interface {
	t.Helper()
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// account applies a file of deploy, and returns a token of its service account.
func (c *cluster) account(file string) string {
	c.t.Helper()
	c.grant(file)
	token, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(c.t.Context(), "virtual-kubelet", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return token.Status.Token
}

// grant applies a file of deploy with rights, and waits until the API server enforces
// them: it watches its own roles.
func (c *cluster) grant(file string) {
	c.t.Helper()
	path := filepath.Join(deploy, file)
	c.apply(path)
	text, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			c.t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if role.Kind == "ClusterRole" && len(rule.ResourceNames) == 0 {
				c.waitAllowed(rule)
			}
		}
	}
}

func (c *cluster) waitAllowed(rule rbacv1.PolicyRule) {
	c.t.Helper()
	name, subresource, _ := strings.Cut(rule.Resources[0], "/")
	eventually(c.t, fmt.Sprintf("the node may %s %s", rule.Verbs[0], rule.Resources[0]), func(ctx context.Context) error {
		review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:kube-system:virtual-kubelet",
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: rule.APIGroups[0], Resource: name, Subresource: subresource, Verb: rule.Verbs[0],
				},
			},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New("it may not")
		}
		return err
	})
}

func (c *cluster) apply(path string) {
	c.t.Helper()
	if out, err := c.Kubectl(c.t.Context(), "apply", "-f", path).CombinedOutput(); err != nil {
		c.t.Fatalf("kubectl apply -f %s: %v\n%s", path, err, out)
	}
}

// applyText applies manifests.
func (c *cluster) applyText(text string) {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.apply(path)
}

// as returns the client configuration for a token.
func (c *cluster) as(token string) *rest.Config {
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken, config.QPS = token, -1
	return config
}

// remoteOf returns a configuration of the provider with the rights of
// deploy/kubernetes-remote-rbac.yaml.
func remoteOf(c *cluster, token string) kubernetes.Remote {
	c.t.Helper()
	dir := c.t.TempDir()
	ca, file := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	data := c.Config().CAData
	if len(data) == 0 {
		var err error
		if data, err = os.ReadFile(c.Config().CAFile); err != nil {
			c.t.Fatal(err)
		}
	}
	for path, content := range map[string][]byte{ca: data, file: []byte(token)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	return kubernetes.Remote{Server: c.Config().Host, CAFile: ca, TokenFile: file}
}

// configOf returns the configuration of a file, with remote.
func configOf(t *testing.T, remote kubernetes.Remote, more string) kubernetes.Config {
	t.Helper()
	cfg, err := kubernetes.ParseConfig(fmt.Appendf(nil, `
apiVersion: kubernetes.virtual-kubelet.io/v1
kind: RemoteCluster
cluster: home
remote: {server: %q, caFile: %q, tokenFile: %q}
%s`, remote.Server, remote.CAFile, remote.TokenFile, more))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// running is a node in this process.
type running struct {
	t     *testing.T
	node  *nodeutil.Node
	stop  context.CancelFunc
	group *errgroup.Group
	log   *lockedbuffer.Buffer
	close func() error
}

// startNode starts a node, and waits until it is ready.
func startNode(t *testing.T, client clientset.Interface, name string, newProvider nodeutil.NewProviderFunc, opts ...nodeutil.NodeOpt) *running {
	t.Helper()
	r := launchNode(t, client, name, newProvider, opts...)
	if err := r.node.WaitReady(t.Context(), patience); err != nil {
		t.Fatalf("node %s does not get ready: %v\n%s", name, err, tail(r.log))
	}
	return r
}

// launchNode starts a node.
func launchNode(t *testing.T, client clientset.Interface, name string, newProvider nodeutil.NewProviderFunc, opts ...nodeutil.NodeOpt) *running {
	t.Helper()
	r := &running{t: t, log: &lockedbuffer.Buffer{}, close: func() error { return nil }}
	ctx, cancel := context.WithCancel(log.WithLogger(context.Background(), vkslog.FromSlog(slog.New(slog.NewTextHandler(r.log, nil)))))
	r.stop = cancel
	r.group, ctx = errgroup.WithContext(ctx)
	ca, err := nodeutil.NewClusterClientCA(client)
	if err != nil {
		t.Fatal(err)
	}
	r.group.Go(func() error { return ca.Run(ctx) })
	auth, err := nodeutil.WebhookAuth(client, name, nodeutil.WithClientCA(ca))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	address := machineAddress(t)
	cfg := nodeutil.NodeConfig{Client: client, HTTPListenAddr: net.JoinHostPort(address, "0"), Handler: nodeutil.WithAuth(auth, api.InstrumentHandler(mux))}
	cfg.NodeSpec.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name}}
	n, err := nodeutil.NewNode(name, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		provider, nodeProvider, err := newProvider(cfg)
		if closer, ok := nodeProvider.(io.Closer); ok {
			r.close = closer.Close
		}
		return provider, nodeProvider, err
	}, append(append([]nodeutil.NodeOpt{nodeutil.WithNodeConfig(cfg)}, opts...), nodeutil.AttachProviderRoutes(mux))...)
	if err != nil {
		t.Fatal(err)
	}
	r.group.Go(func() error { return n.Run(ctx) })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of node %s:\n%s", name, tail(r.log))
		}
		r.end()
	})
	r.node = n
	return r
}

func (r *running) end() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	if err := errors.Join(r.group.Wait(), r.close()); err != nil {
		r.t.Errorf("a node did not end well: %v", err)
	}
}

// startMock starts a node whose pods only seem to run.
func startMock(t *testing.T, c *cluster, name string) *running {
	t.Helper()
	return startNode(t, c.client, name, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := mock.New(mock.Config{NodeName: name, HostIP: cfg.HostIPs()[0], StopDelay: time.Second})
		if err != nil {
			return nil, nil, err
		}
		p.ConfigureNode(context.Background(), cfg.Node)
		delete(cfg.Node.Labels, "type") // it stands for a machine: virtual nodes do not count for the capacity
		return p, p, nil
	})
}

// startVirtual starts the virtual node in the home cluster.
func startVirtual(t *testing.T, client clientset.Interface, cfg kubernetes.Config) *running {
	t.Helper()
	return startNode(t, client, homeNode, newProvider(cfg))
}

func newProvider(cfg kubernetes.Config) nodeutil.NewProviderFunc {
	return func(home nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		p, err := kubernetes.New(context.Background(), home, cfg)
		return p, p, err
	}
}

func machineAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback, which the API server does not proxy to")
	return ""
}

// eventually polls until check returns no error.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || last == nil || ctx.Err() == nil { // the timeout itself is no useful error
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("waited for: %s: %v", what, last)
	}
}

// tail returns the last lines of a log.
func tail(log *lockedbuffer.Buffer) string {
	lines := strings.Split(log.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}
