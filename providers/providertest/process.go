package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodeaddress"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// process is one life of the node and its provider.
type process struct {
	provider     nodeutil.Provider
	nodeProvider node.NodeProvider
	stop         context.CancelFunc
	group        *errgroup.Group
	log          *logBuffer
}

// start starts the node, and waits until it is ready. What goes wrong ends t.
func (r *runner) start(t *testing.T) {
	t.Helper()
	if err := r.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// launch starts the node, and waits until it is ready.
func (r *runner) launch(ctx context.Context) error {
	p := &process{log: &logBuffer{}}
	logger := vkslog.FromSlog(slog.New(slog.NewTextHandler(p.log, nil)))
	running, cancel := context.WithCancel(log.WithLogger(context.Background(), logger))
	p.stop = cancel
	p.group, running = errgroup.WithContext(running)
	n, err := r.newNode(running, p)
	if err != nil {
		cancel()
		return fmt.Errorf("cannot make the node: %w", errors.Join(err, p.group.Wait(), p.close()))
	}
	p.group.Go(func() error { return n.Run(running) })
	r.running = p
	if err := n.WaitReady(ctx, startTimeout); err != nil {
		return fmt.Errorf("the node does not get ready: %w\n%s", errors.Join(err, r.stop()), p.log)
	}
	return nil
}

// restart ends the node and starts it again, with a provider of its own: see
// nodecheck.Options.
func (r *runner) restart(ctx context.Context, down func(context.Context) error) error {
	if err := r.stop(); err != nil {
		return fmt.Errorf("the node did not end well: %w", err)
	}
	err := down(ctx)
	return errors.Join(err, r.launch(context.WithoutCancel(ctx)))
}

// newNode puts the node together as the binary does.
func (r *runner) newNode(ctx context.Context, p *process) (*nodeutil.Node, error) {
	ip, err := nodeaddress.Own()
	if err != nil {
		return nil, err
	}
	address := ip.String()
	ca, err := nodeutil.NewClusterClientCA(r.client)
	if err != nil {
		return nil, err
	}
	p.group.Go(func() error { return ca.Run(ctx) })
	auth, err := nodeutil.WebhookAuth(r.client, r.NodeName, nodeutil.WithClientCA(ca))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	cfg := nodeutil.NodeConfig{
		Client:         r.client,
		HTTPListenAddr: net.JoinHostPort(address, "0"),
		Handler:        nodeutil.WithAuth(auth, api.InstrumentHandler(mux)),
	}
	cfg.NodeSpec.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: address},
		{Type: corev1.NodeHostName, Address: r.NodeName},
	}
	opts := append([]nodeutil.NodeOpt{nodeutil.WithNodeConfig(cfg)}, r.NodeOptions...)
	return nodeutil.NewNode(r.NodeName, func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		var err error
		p.provider, p.nodeProvider, err = r.NewProvider(cfg)
		return p.provider, p.nodeProvider, err
	}, append(opts, nodeutil.AttachProviderRoutes(mux))...)
}

// stop ends the node, and closes the provider.
func (r *runner) stop() error {
	p := r.running
	if p == nil {
		return nil
	}
	r.running = nil
	p.stop()
	return errors.Join(p.group.Wait(), p.close())
}

// close closes what was made by NewProvider, and can be closed, once.
func (p *process) close() error {
	var first, second any = p.provider, p.nodeProvider
	if wrapped, ok := first.(interface {
		Unwrap() node.PodLifecycleHandler
	}); ok {
		first = wrapped.Unwrap()
	}
	var errs []error
	if c, ok := first.(io.Closer); ok {
		errs = append(errs, c.Close())
	}
	if c, ok := second.(io.Closer); ok && second != first {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// tearDown stops the node, and removes it from the cluster.
func (r *runner) tearDown(t *testing.T) {
	if p := r.running; p != nil && t.Failed() {
		t.Logf("the end of the log of the node:\n%s", p.log)
	}
	if err := r.stop(); err != nil {
		t.Errorf("the node did not end well: %v", err)
	}
	err := r.client.CoreV1().Nodes().Delete(context.Background(), r.NodeName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("cannot remove the node: %v", err)
	}
}
