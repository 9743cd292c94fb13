package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

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

// metricsServer opens the port of --metrics-addr, and returns a function that serves it.
func (o *options) metricsServer(ctx context.Context, all http.Handler) (func(context.Context) error, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.metricsAddr)
	if err != nil {
		return nil, usagef("--metrics-addr cannot be served: %w", err)
	}
	server := &http.Server{Handler: metricsHandler(all), ReadHeaderTimeout: 10 * time.Second}
	return func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		log.G(ctx).WithField("address", listener.Addr().String()).Info("Serving metrics")
		if err := server.Serve(listener); err != http.ErrServerClosed {
			return fmt.Errorf("cannot go on serving metrics: %w", err)
		}
		return nil
	}, nil
}
