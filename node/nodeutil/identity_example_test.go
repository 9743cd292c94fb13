package nodeutil_test

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// A node that joins a cluster as a kubelet does: with a bootstrap token at
// first, then with a client certificate of its own; its serving certificate is
// signed by the cluster, too.
func ExampleNodeIdentity() {
	run := func(ctx context.Context, newProvider nodeutil.NewProviderFunc) error {
		const name, dir = "my-node", "/var/lib/my-node/pki"
		group, ctx := errgroup.WithContext(ctx)
		identity, err := nodeutil.NewNodeIdentity(ctx, nodeutil.NodeIdentityConfig{
			NodeName:            name,
			BootstrapKubeconfig: "/etc/my-node/bootstrap.kubeconfig",
			CertDir:             dir,
		})
		if err != nil {
			return err
		}
		group.Go(func() error { return identity.Run(ctx) })
		if err := identity.WaitReady(ctx); err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(nodeutil.Protobuf(identity.Config()))
		if err != nil {
			return err
		}
		auth, err := nodeutil.WebhookAuth(client, name, nodeutil.WithClientCAFile("/etc/kubernetes/pki/ca.crt"))
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		n, err := nodeutil.NewNode(name, newProvider,
			nodeutil.WithClient(client),
			nodeutil.WithServingCertificateFromCluster(dir),
			nodeutil.AttachProviderRoutes(mux),
			func(cfg *nodeutil.NodeConfig) error {
				cfg.Handler = api.InstrumentHandler(nodeutil.WithAuth(auth, mux))
				return nil
			},
		)
		if err != nil {
			return err
		}
		group.Go(func() error { return n.Run(ctx) })
		return group.Wait()
	}
	_ = run
}
