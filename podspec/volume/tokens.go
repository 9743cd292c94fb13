package volume

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// A token is renewed when this part of its life has passed,
	renewAfter = 0.8
	// or when it is older than this.
	maxTokenAge = 24 * time.Hour
	// Up to this part of the time until then it is renewed earlier, so that
	// pods that began together do not renew together for ever.
	renewJitter = 0.05
	// No renewal is due earlier, however short a life is.
	minTokenAge = 5 * time.Second
	// After a renewal that failed, the next is tried as long after.
	renewRetry = 30 * time.Second
)

// TokenRequester requests tokens of service accounts. Client is one.
type TokenRequester interface {
	// RequestToken returns request as the API server answered it. The request
	// is bound to a pod by name and UID: a node's own identity has a right to
	// no other.
	RequestToken(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Token is a token of a service account.
type Token struct {
	// Value is the token.
	Value string
	// Renew is when to ask for it again.
	Renew time.Time
}

// Tokens keeps the tokens of pods, and renews them: when they are asked for
// after 80 % of their life, or 24 hours. It is safe for concurrent use.
type Tokens struct {
	// MinLifetime is the least time for which tokens are asked to be valid, for what
	// cannot be given another one. The API server may grant less. It is set before use.
	MinLifetime time.Duration

	requester TokenRequester

	mu   sync.Mutex
	pods map[types.UID]map[tokenKey]held
}

type tokenKey struct {
	audience string
	seconds  int64
}

func keyOf(audience string, seconds *int64) tokenKey {
	key := tokenKey{audience: audience}
	if seconds != nil {
		key.seconds = *seconds
	}
	return key
}

// held is a token and, by the clock of this machine, how long it is valid.
type held struct {
	Token
	expires time.Time
}

// NewTokens makes Tokens that come from requester.
func NewTokens(requester TokenRequester) *Tokens {
	return &Tokens{requester: requester, pods: map[types.UID]map[tokenKey]held{}}
}

// Token returns a token of the service account of pod, bound to the pod. An empty
// audience is the API server's; nil seconds are its default. If a renewal fails
// while the old token is valid, it is the old one; the renewal is due again soon.
func (t *Tokens) Token(ctx context.Context, pod *corev1.Pod, audience string, seconds *int64) (Token, error) {
	key := keyOf(audience, seconds)
	old, now := t.get(pod.UID, key), time.Now()
	if now.Before(old.Renew) && now.Before(old.expires) {
		return old.Token, nil
	}
	fresh, err := t.request(ctx, pod, audience, seconds)
	if err != nil {
		if !time.Now().Before(old.expires) {
			return Token{}, err
		}
		log.G(ctx).WithError(err).WithField("pod", pod.Namespace+"/"+pod.Name).
			Warnf("a service account token could not be renewed; the old one is valid until %s", old.expires.Format(time.RFC3339))
		fresh = old
		fresh.Renew = now.Add(renewRetry)
	}
	t.set(pod.UID, key, fresh)
	return fresh.Token, nil
}

// Forget drops the tokens of a pod.
func (t *Tokens) Forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

func (t *Tokens) get(uid types.UID, key tokenKey) held {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pods[uid][key]
}

func (t *Tokens) set(uid types.UID, key tokenKey, h held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods[uid] == nil {
		t.pods[uid] = map[tokenKey]held{}
	}
	t.pods[uid][key] = h
}

func (t *Tokens) request(ctx context.Context, pod *corev1.Pod, audience string, seconds *int64) (held, error) {
	if least := int64(t.MinLifetime / time.Second); least > 0 && (seconds == nil || *seconds < least) {
		seconds = &least
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	asked := time.Now().Round(0) // by the wall clock, which goes on while a machine sleeps
	answer, err := t.requester.RequestToken(ctx, pod.Namespace, cmp.Or(pod.Spec.ServiceAccountName, "default"), request)
	if err != nil {
		return held{}, err
	}
	if answer.Status.Token == "" {
		return held{}, errors.New("the API server's answer has no token")
	}
	life := lifeOf(answer, asked)
	return held{
		Token:   Token{Value: answer.Status.Token, Renew: asked.Add(renewal(life))},
		expires: asked.Add(life),
	}, nil
}

// lifeOf returns how long a token lives. A duration that was granted is better
// than a time, which is by the API server's clock.
func lifeOf(answer *authenticationv1.TokenRequest, asked time.Time) time.Duration {
	if s := answer.Spec.ExpirationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return answer.Status.ExpirationTimestamp.Sub(asked)
}

// renewal returns the age at which to renew a token of that life.
func renewal(life time.Duration) time.Duration {
	age := min(time.Duration(renewAfter*float64(life)), maxTokenAge)
	return max(minTokenAge, age-time.Duration(rand.Float64()*renewJitter*float64(age)))
}
