package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // for its metrics
	_ "k8s.io/component-base/metrics/prometheus/workqueue"  // for its metrics

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// clientCA is a source of CAs that may follow changes while Run runs.
type clientCA interface {
	dynamiccertificates.CAContentProvider
	RunOnce(ctx context.Context) error
	Run(ctx context.Context, workers int)
}

// newAuth has callers of the kubelet API checked as a kubelet does: client
// certificates against the CA in a file or else the cluster's own, bearer
// tokens and rights by asking the API server.
func newAuth(client kubernetes.Interface, o *options) (nodeutil.Auth, func(context.Context), error) {
	var ca clientCA
	var err error
	if o.clientCAFile != "" {
		ca, err = dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCAFile)
	} else {
		ca, err = dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca",
			"kube-system", "extension-apiserver-authentication", "client-ca-file", client)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use the client CA: %w", err)
	}
	auth, err := nodeutil.WebhookAuth(client, o.nodeName, func(cfg *nodeutil.WebhookAuthConfig) error {
		cfg.AuthnConfig.ClientCertificateCAContentProvider = ca
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return nodeutil.InstrumentAuth(auth), func(ctx context.Context) {
		if err := ca.RunOnce(ctx); err != nil {
			log.G(ctx).WithError(err).Warn("Cannot read the client CA yet; until then only bearer tokens are accepted")
		}
		ca.Run(ctx, 1)
	}, nil
}

// handler protects what the provider's routes answer. Health is for everybody.
func (v *virtualNode) handler(mux *http.ServeMux) http.Handler {
	mux.Handle("GET /metrics", legacyregistry.Handler())
	outer := http.NewServeMux()
	outer.Handle("/", api.InstrumentHandler(nodeutil.WithAuth(v.auth, mux)))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	return outer
}

// metricsServer opens the port of --metrics-addr, and returns what serves it.
func (v *virtualNode) metricsServer(ctx context.Context) (func(context.Context) error, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", v.metricsAddr)
	if err != nil {
		return nil, usagef("--metrics-addr cannot be served: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", legacyregistry.Handler())
	api.AttachPodMetricsRoutes(api.PodMetricsConfig{
		GetStatsSummary:    v.provider.GetStatsSummary,
		GetMetricsResource: v.provider.GetMetricsResource,
	}, mux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		log.G(ctx).WithField("address", listener.Addr().String()).Info("Serving metrics")
		if err := server.Serve(listener); err != http.ErrServerClosed {
			return fmt.Errorf("cannot go on serving metrics: %w", err)
		}
		return nil
	}, nil
}
