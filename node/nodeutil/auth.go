package nodeutil

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/pendingconns"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// Auth finds out which user a request is from, what it wants in terms of the API's access
// control, and whether it may.
type Auth interface {
	AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error)
	Authorize(ctx context.Context, a authorizer.Attributes) (authorized authorizer.Decision, reason string, err error)
	GetRequestAttributes(user.Info, *http.Request) authorizer.Attributes
}

type auth struct {
	authenticator.Request
	authorizer.Authorizer
	NodeRequestAttr
	clientCA dynamiccertificates.CAContentProvider // nil if client certificates are not accepted
}

// NoAuth lets everybody do everything.
func NoAuth() Auth { return noAuth{} }

type noAuth struct{ NodeRequestAttr }

func (noAuth) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}}, true, nil
}

func (noAuth) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// WebhookAuthConfig configures WebhookAuth.
type WebhookAuthConfig struct {
	// AuthnConfig says how callers are known: by default by bearer token, which
	// the API server reviews (cached for two minutes). With a
	// ClientCertificateCAContentProvider also by client certificate: see
	// WithClientCAFile and WithClientCA. Anonymous callers are refused unless
	// Anonymous is set: see WithAnonymousAuth.
	AuthnConfig authenticatorfactory.DelegatingAuthenticatorConfig
	// AuthzConfig says how callers are authorized: by default by a
	// SubjectAccessReview (cached for five minutes if allowed, else 30 s).
	AuthzConfig authorizerfactory.DelegatingAuthorizerConfig
}

// WebhookAuthOption changes a WebhookAuthConfig.
type WebhookAuthOption func(*WebhookAuthConfig) error

// WebhookAuth asks the API server which user a caller is and whether it may, as the
// kubelet does with --authentication-token-webhook and
// --authorization-mode=Webhook. The client needs the right to create
// tokenreviews and subjectaccessreviews (ClusterRole system:auth-delegator).
func WebhookAuth(client kubernetes.Interface, nodeName string, opts ...WebhookAuthOption) (Auth, error) {
	if client == nil {
		return nil, errdefs.InvalidInput("webhook authentication was given no client: pass the one that the node uses")
	}
	// As k8s.io/apiserver's options have it, which pull in a whole API server. It ends, since
	// a caller waits.
	backoff := webhook.DefaultRetryBackoffWithInitialDelay(500 * time.Millisecond)
	cfg := WebhookAuthConfig{
		AuthnConfig: authenticatorfactory.DelegatingAuthenticatorConfig{
			Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: false},
			TokenAccessReviewClient:  client.AuthenticationV1(),
			TokenAccessReviewTimeout: 10 * time.Second,
			WebhookRetryBackoff:      &backoff,
			CacheTTL:                 2 * time.Minute,
		},
		AuthzConfig: authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: client.AuthorizationV1(),
			WebhookRetryBackoff:       &backoff,
			AllowCacheTTL:             5 * time.Minute,
			DenyCacheTTL:              30 * time.Second,
		},
	}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&cfg); err != nil {
			return nil, err
		}
	}
	authn, _, err := cfg.AuthnConfig.New()
	if err != nil {
		return nil, fmt.Errorf("cannot set up authentication: %w", err)
	}
	authz, err := cfg.AuthzConfig.New()
	if err != nil {
		return nil, fmt.Errorf("cannot set up authorization: %w", err)
	}
	return auth{authn, authz, NodeRequestAttr{NodeName: nodeName}, cfg.AuthnConfig.ClientCertificateCAContentProvider}, nil
}

// NodeRequestAttr gives requests to a kubelet the attributes that the kubelet
// gives them (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/):
// the node as resource, the path as subresource, the method as verb. A GET that
// opens a stream counts as a POST, so that users who may only read may not run.
type NodeRequestAttr struct {
	NodeName string
}

// subresources are the path prefixes with a subresource of their own.
var subresources = []struct{ prefix, name string }{
	{"/stats", "stats"},
	{"/metrics", "metrics"},
	{"/logs", "log"},
	{"/checkpoint", "checkpoint"},
	{"/pods", "pods"},
	{"/runningpods", "pods"},
	{"/status", "pods"}, // which only a virtual node has
	{"/healthz", "healthz"},
	{"/livez", "healthz"},
	{"/readyz", "healthz"},
	{"/configz", "configz"},
	{"/statusz", "statusz"},
	{"/flagz", "configz"},
}

// fineGrained are the subresources that nodes/proxy covers as well (KEP-2862), but for
// /flagz.
var fineGrained = map[string]bool{"pods": true, "healthz": true, "configz": true}

// coveredByProxy reports whether nodes/proxy allows the request as well.
func coveredByProxy(a authorizer.Attributes) bool {
	return fineGrained[a.GetSubresource()] && !isUnder(a.GetPath(), "/flagz")
}

func isUnder(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

var verbs = map[string]string{
	http.MethodGet:    "get",
	http.MethodHead:   "get",
	http.MethodPost:   "create",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// GetRequestAttributes returns what the request asks for.
func (a NodeRequestAttr) GetRequestAttributes(u user.Info, r *http.Request) authorizer.Attributes {
	attributes := authorizer.AttributesRecord{
		User:            u,
		Verb:            verbs[r.Method],
		APIVersion:      "v1",
		Resource:        "nodes",
		Subresource:     "proxy",
		Name:            a.NodeName,
		ResourceRequest: true,
		Path:            r.URL.Path,
	}
	for _, s := range subresources {
		if isUnder(r.URL.Path, s.prefix) {
			attributes.Subresource = s.name
		}
	}
	for _, stream := range []string{"/exec/", "/attach/", "/portForward/", "/run/"} {
		if attributes.Verb == "get" && strings.HasPrefix(r.URL.Path, stream) {
			attributes.Verb = "create"
		}
	}
	return attributes
}

// AuthForNode is auth for another node: it asks the same questions about the
// named one. An empty name stands for all nodes.
func AuthForNode(auth Auth, nodeName string) Auth {
	return nodeAuth{auth, NodeRequestAttr{NodeName: nodeName}}
}

type nodeAuth struct {
	Auth
	attributes NodeRequestAttr
}

func (a nodeAuth) GetRequestAttributes(u user.Info, r *http.Request) authorizer.Attributes {
	return a.attributes.GetRequestAttributes(u, r)
}

// WithAuth lets requests through to h that auth knows (else 401) and allows
// (else 403). Where it is the configuration of WebhookAuth that keeps a caller from being
// known, such as a client CA that is missing, the log has that once.
func WithAuth(auth Auth, h http.Handler) http.Handler {
	refused := newQuietLog()
	var explained refusals
	return authHandler{auth: auth, HandlerFunc: func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		caller, ok, err := auth.AuthenticateRequest(r)
		if (!ok || caller.User.GetName() == user.Anonymous) && asksAPIServer(auth) {
			if known, verified, certErr := byCertificate(r); verified {
				caller, ok, err = known, certErr == nil, certErr
			}
		}
		if err != nil || !ok {
			if err != nil {
				refused.warn(ctx, "Cannot authenticate a request", log.Fields{"error": err, "uri": r.URL.Path})
			} else {
				explained.explain(auth, r)
			}
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		attributes := auth.GetRequestAttributes(caller.User, r)
		decision, reason, err := authorize(ctx, auth, attributes)
		if decision != authorizer.DecisionAllow {
			if err != nil {
				refused.warn(ctx, "Cannot authorize a request", log.Fields{"error": err, "uri": r.URL.Path})
				http.Error(w, "Authorization error: the API server could not be asked", http.StatusInternalServerError)
				return
			}
			asked := []string{attributes.GetSubresource()}
			if coveredByProxy(attributes) {
				asked = append(asked, "proxy")
			}
			message := fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=%s, subresource(s)=%v)",
				caller.User.GetName(), attributes.GetVerb(), attributes.GetResource(), asked)
			if caller.User.GetName() == user.Anonymous {
				explained.explain(auth, r)
			}
			refused.info(ctx, "Refused a request", log.Fields{"answer": message, "reason": reason, "uri": r.URL.Path})
			http.Error(w, message, http.StatusForbidden)
			return
		}
		pendingconns.Admit(ctx)
		h.ServeHTTP(w, r.WithContext(withAuthSettled(request.WithUser(ctx, caller.User))))
	}}
}

// authorize asks for the request's own subresource first, then for proxy, which
// covered all of them before there were finer ones.
func authorize(ctx context.Context, auth Auth, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := auth.Authorize(ctx, attributes)
	record, ok := attributes.(authorizer.AttributesRecord)
	if decision == authorizer.DecisionAllow || !ok || !coveredByProxy(record) {
		return decision, reason, err
	}
	record.Subresource = "proxy"
	return auth.Authorize(ctx, record)
}

// InstrumentAuth traces the two questions.
func InstrumentAuth(auth Auth) Auth {
	if _, already := auth.(*tracedAuth); already {
		return auth
	}
	return &tracedAuth{auth}
}

type tracedAuth struct{ Auth }

func (a *tracedAuth) AuthenticateRequest(r *http.Request) (_ *authenticator.Response, _ bool, err error) {
	ctx, span := trace.StartSpan(r.Context(), "AuthenticateRequest")
	defer span.End()
	defer func() { span.SetStatus(err) }()
	return a.Auth.AuthenticateRequest(r.WithContext(ctx))
}

func (a *tracedAuth) Authorize(ctx context.Context, attributes authorizer.Attributes) (_ authorizer.Decision, _ string, err error) {
	ctx, span := trace.StartSpan(ctx, "Authorize")
	defer span.End()
	defer func() { span.SetStatus(err) }()
	return a.Auth.Authorize(ctx, attributes)
}
