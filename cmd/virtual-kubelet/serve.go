package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // for its metrics
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // for its metrics

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// newAuth authenticates and authorizes callers of the kubelet API as a kubelet does:
// client certificates by the CA in a file or the cluster's own, bearer tokens and
// rights by asking the API server. The function that it returns has to run meanwhile.
func newAuth(client kubernetes.Interface, o *options) (nodeutil.Auth, func(context.Context) error, error) {
	run := func(context.Context) error { return nil }
	var opts []nodeutil.WebhookAuthOption
	if o.clientCAFile != "" {
		opts = append(opts, nodeutil.WithClientCAFile(o.clientCAFile))
	} else {
		ca, err := nodeutil.NewClusterClientCA(client)
		if err != nil {
			return nil, nil, err
		}
		run = ca.Run
		opts = append(opts, nodeutil.WithClientCA(ca))
	}
	if o.anonymous {
		opts = append(opts, nodeutil.WithAnonymousAuth())
	}
	auth, err := nodeutil.WebhookAuth(client, o.nodeName, opts...)
	if err != nil {
		return nil, nil, err
	}
	return nodeutil.InstrumentAuth(auth), run, nil
}

// handler returns mux behind authentication and authorization, health excepted.
func (v *virtualNode) handler(mux *http.ServeMux) http.Handler {
	v.mux = mux
	return api.InstrumentHandler(nodeutil.WithAuthExceptHealth(v.auth, mux))
}

// metricsHandler answers requests to --metrics-addr: those routes of the kubelet API that
// are for Prometheus and for probes, and the statistics.
func metricsHandler(all http.Handler) http.Handler {
	mux := http.NewServeMux()
	all = nodeutil.WithAuth(nodeutil.NoAuth(), all)
	for _, path := range []string{"/metrics", "/metrics/", "/stats/", "/healthz", "/livez", "/readyz"} {
		mux.Handle(path, api.InstrumentHandler(all))
	}
	return mux
}

// metricsPort is that of --metrics-addr. A nil one is that of a process without the flag:
// its methods do nothing.
type metricsPort struct {
	address string
	server  *http.Server
	group   *errgroup.Group // what serves the port is part of it
	serving net.Addr        // nil until the port is open
}

// newMetricsPort opens the port before there is a node. Where it is in use it may be that
// of the process that has the node, whose end this one waits for: open tries again.
func (o *options) newMetricsPort(ctx context.Context, group *errgroup.Group, all http.Handler) (*metricsPort, error) {
	if o.metricsAddr == "" {
		return nil, nil
	}
	server := &http.Server{Handler: metricsHandler(all), ReadHeaderTimeout: 10 * time.Second}
	p := &metricsPort{address: o.metricsAddr, server: server, group: group}
	err := p.open(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		log.G(ctx).WithError(err).Warn("Metrics are not served until this process may act for its node")
		return p, nil
	}
	return p, err
}

// open opens the port unless it is open, and has it served until ctx ends.
func (p *metricsPort) open(ctx context.Context) error {
	if p == nil || p.serving != nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", p.address)
	if err != nil {
		return usagef("--metrics-addr cannot be served: %w", err)
	}
	p.serving = listener.Addr()
	p.group.Go(func() error {
		defer context.AfterFunc(ctx, func() { _ = p.server.Close() })()
		log.G(ctx).WithField("address", p.serving.String()).Info("Serving metrics")
		if err := p.server.Serve(listener); err != http.ErrServerClosed {
			return fmt.Errorf("cannot go on serving metrics: %w", err)
		}
		return nil
	})
	return nil
}

// close frees the port, for the next process of the node.
func (p *metricsPort) close() {
	if p != nil {
		_ = p.server.Close()
	}
}
