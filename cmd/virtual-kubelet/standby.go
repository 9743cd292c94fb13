package main

import (
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // for its metric
)

// standby answers requests to --metrics-addr from the start of the process on: those about
// the process, until there is a node whose kubelet API answers them.
type standby struct{ handler atomic.Pointer[http.Handler] }

// newStandby is of a process that is alive, and not ready: it may wait for its client
// certificate, for the claim to its node, or for its provider.
func newStandby() *standby {
	s := &standby{}
	s.use(processHandler(healthz.NamedCheck("started", func(*http.Request) error {
		return errors.New("the node has not been started yet")
	})))
	return s
}

// processHandler answers requests about the process.
func processHandler(ready healthz.HealthChecker) http.Handler {
	mux := http.NewServeMux()
	healthz.InstallPathHandler(mux, "/healthz", healthz.PingHealthz)
	healthz.InstallPathHandler(mux, "/livez", healthz.PingHealthz)
	healthz.InstallPathHandler(mux, "/readyz", ready)
	mux.Handle("/metrics", legacyregistry.Handler())
	return mux
}

func (s *standby) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.handler.Load()).ServeHTTP(w, r)
}

// elect makes the process ready to lead: it stands by from now on.
func (s *standby) elect() { s.use(processHandler(healthz.PingHealthz)) }

// use has the requests answered by the kubelet API of what this process runs from now on.
func (s *standby) use(kubeletAPI http.Handler) { s.handler.Store(&kubeletAPI) }
