package nodeutil

import (
	"context"
	"crypto/tls"
	"net/http"
	"reflect"
	"sync"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509auth "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// authSettled is in the context of a request that has come through WithAuth, or through
// what WithAuthExceptHealth answers to everybody.
type authSettled struct{}

func withAuthSettled(ctx context.Context) context.Context {
	return context.WithValue(ctx, authSettled{}, true)
}

// guard serves h to those requests that an Auth has decided about: the caller's
// handler, by WithAuth or WithAuthExceptHealth, or its TLS configuration, by a client
// certificate that it demands. All others are for cfg.Auth and, where there is none, for
// the API server to decide.
func (n *Node) guard(h http.Handler) http.Handler {
	if n.cfg.Auth == nil {
		n.defaultAuth = &defaultAuth{asked: make(chan struct{})}
	}
	protected := sync.OnceValues(func() (http.Handler, error) {
		auth := n.cfg.Auth
		if auth == nil {
			var err error
			if auth, err = WebhookAuth(n.cfg.Client, n.cfg.NodeSpec.Name, WithClientCA(n.defaultAuth.ca)); err != nil {
				return nil, err
			}
			auth = InstrumentAuth(auth)
		}
		return WithAuthExceptHealth(auth, h), nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		settled := r.Context().Value(authSettled{}) != nil
		if settled || n.cfg.Auth == nil && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			h.ServeHTTP(w, r)
			return
		}
		n.warnOfDefaultAuth(r.Context())
		handler, err := protected()
		if err != nil {
			log.G(r.Context()).WithError(err).Error("Cannot ask the API server who may use the kubelet API")
			http.Error(w, "Authentication is not set up", http.StatusInternalServerError)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// defaultAuth is what a node needs to ask the API server where the config does not define
// who may use its kubelet API.
type defaultAuth struct {
	ca    *ClusterClientCA // knows the certificate of the API server itself; made before asked is closed
	once  sync.Once
	asked chan struct{} // closed at the first request, or when it is clear that all are for it
}

// warnOfDefaultAuth logs once that the API server is asked, and what that needs.
func (n *Node) warnOfDefaultAuth(ctx context.Context) {
	if n.defaultAuth == nil {
		return
	}
	n.defaultAuth.once.Do(func() {
		log.G(ctx).Warn("No authentication is configured for the kubelet API, so the API server decides: " +
			"this needs the rights to create tokenreviews and subjectaccessreviews (ClusterRole system:auth-delegator) " +
			"and to read the cluster's client CA (Role kube-system/extension-apiserver-authentication-reader). " +
			"Set NodeConfig.Auth, to NoAuth() to let everybody do everything")
		n.defaultAuth.ca = newClusterClientCA(n.cfg.Client)
		close(n.defaultAuth.asked)
	})
}

// pollClientCA keeps the client CA of the default authentication up to date from the
// first request on that needs it, until ctx ends.
func (n *Node) pollClientCA(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-n.defaultAuth.asked:
		return unlessEnded(ctx, n.defaultAuth.ca.Run(ctx))
	}
}

// sameHandler reports whether a handler is the mux itself, with nothing around it but
// what can be unwrapped.
func sameHandler(h http.Handler, mux api.ServeMux) bool {
	if around, ok := h.(interface{ Unwrap() http.Handler }); ok {
		return sameHandler(around.Unwrap(), mux)
	}
	return h != nil && mux != nil && reflect.TypeOf(h) == reflect.TypeOf(mux) &&
		reflect.TypeOf(h).Comparable() && any(h) == any(mux)
}

// authHandler is a handler that shows its Auth.
type authHandler struct {
	http.HandlerFunc
	auth Auth
}

// acceptTokens has the TLS configuration, which demands client certificates, let in
// clients without one where all that is served is for WebhookAuth to decide.
func (n *Node) acceptTokens(config *tls.Config) {
	if !n.cfg.caGiven {
		return
	}
	if !acceptsTokens(n.cfg.Handler) {
		if n.cfg.Auth == nil || !asksAPIServer(n.cfg.Auth) {
			return
		}
		// The caller's mux may have more than the routes that NodeConfig.Auth is asked for.
		n.cfg.Handler = WithAuthExceptHealth(n.cfg.Auth, n.cfg.Handler)
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
}

// acceptsTokens reports whether a handler leaves the decision to WebhookAuth, as far as
// it lets see that.
func acceptsTokens(h http.Handler) bool {
	for {
		switch around := h.(type) {
		case authHandler:
			return asksAPIServer(around.auth)
		case interface{ Unwrap() http.Handler }:
			h = around.Unwrap()
		default:
			return false
		}
	}
}

// byCertificate returns the user that has sent a request by the client certificate that the TLS
// configuration has verified, if there is one.
func byCertificate(r *http.Request) (caller *authenticator.Response, verified bool, err error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || r.Header.Get("Authorization") != "" {
		return nil, false, nil
	}
	caller, ok, err := x509auth.CommonNameUserConversion.User(r.TLS.VerifiedChains[0])
	return caller, ok, err
}
