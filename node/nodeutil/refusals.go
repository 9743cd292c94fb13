package nodeutil

import (
	"net/http"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// refusals logs, each reason once, what of the configuration keeps callers from being
// known.
type refusals struct{ noCA, unreadCA, noCredentials sync.Once }

// explain is called for a request that a has not found the user of.
func (f *refusals) explain(a Auth, r *http.Request) {
	webhook, ok := webhookOf(a)
	if !ok || r.Header.Get("Authorization") != "" { // a token that is refused is in the error
		return
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		f.noCredentials.Do(func() {
			log.G(r.Context()).WithField("uri", shortText(r.URL.Path)).Info("Refused a request without credentials; where it is kube-apiserver's (kubectl logs and exec), " +
				"that lacks --kubelet-client-certificate, or NodeConfig.TLSConfig does not ask for certificates (ClientAuth)")
		})
		return
	}
	if webhook.clientCA == nil {
		f.noCA.Do(func() {
			log.G(r.Context()).Warn("Refused a client certificate, as kube-apiserver has one, since no client CA is configured: see WithClientCA and WithClientCAFile of package nodeutil, " +
				"or leave NodeConfig.Auth empty")
		})
		return
	}
	verify := webhook.clientCA.VerifyOptions
	if ca, ok := webhook.clientCA.(*ClusterClientCA); ok {
		verify = ca.known // the request has waited for it
	}
	if _, known := verify(); !known {
		f.unreadCA.Do(func() {
			log.G(r.Context()).WithField("clientCA", webhook.clientCA.Name()).Warn("Refused a client certificate, as kube-apiserver has one, since the client CA has not been read: " +
				"that is what ClusterClientCA.Run does, which needs the Role kube-system/extension-apiserver-authentication-reader")
		})
	}
}

// webhookOf returns what WebhookAuth has made, if a is that.
func webhookOf(a Auth) (webhook auth, ok bool) {
	switch a := a.(type) {
	case auth:
		return a, true
	case nodeAuth:
		return webhookOf(a.Auth)
	case *tracedAuth:
		return webhookOf(a.Auth)
	}
	return auth{}, false
}

// asksAPIServer reports whether a is that of WebhookAuth.
func asksAPIServer(a Auth) bool {
	_, ok := webhookOf(a)
	return ok
}
