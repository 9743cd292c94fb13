package main

import (
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // for its metric
)

// standby answers requests to --metrics-addr of a process that takes part in the election
// of --leader-elect: those about the process, until it leads.
type standby struct{ handler atomic.Pointer[http.ServeMux] }

func newStandby() *standby {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		healthz.InstallPathHandler(mux, path, healthz.PingHealthz)
	}
	mux.Handle("/metrics", legacyregistry.Handler())
	s := &standby{}
	s.handler.Store(mux)
	return s
}

func (s *standby) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handler.Load().ServeHTTP(w, r)
}

// lead has the requests answered by the kubelet API of the node that this process runs
// from now on.
func (s *standby) lead(kubeletAPI *http.ServeMux) { s.handler.Store(kubeletAPI) }
