package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// Quota limits how many of something there may be at once. Zero means the default
// that the field of StreamLimits names, a negative number means no limit.
//
// The limits of a user and of a namespace are those of one that is alone. They shrink
// by the part that others use of what they share: a namespace may have 500 of its
// user's 1500, but 250 while the other namespaces have 750. So a few that take all they
// can get leave something for those that come later.
type Quota struct {
	// Total of all callers.
	Total int
	// PerUser of one authenticated user. All requests that come through kube-apiserver
	// are of one user.
	PerUser int
	// PerNamespace of one user for the pods of one namespace: what separates the users
	// who come through kube-apiserver.
	PerNamespace int
	// PerPod of one pod.
	PerPod int
}

// StreamLimits limits what a virtual kubelet does for its callers at the same time.
// The zero value has the defaults.
type StreamLimits struct {
	// Sessions are requests for exec, attach, port-forward and logs. A request beyond
	// the quota is answered with 429. Defaults to 2000, 1500 of one user, 500 of one
	// user in one namespace and 100 of one pod.
	Sessions Quota
	// Connections are what port-forward sessions carry. A connection beyond the quota
	// is refused; the others of its session go on. Defaults to 4000, 3000, 1500 and 1000.
	Connections Quota
	// ConnectionsPerSession limits the connections of one port-forward session,
	// those included of which the client has opened one stream only. Defaults to 512;
	// there is no limit if it is negative.
	ConnectionsPerSession int
	// User names the authenticated user of a request. Nil means that all requests
	// are one user's.
	User func(*http.Request) string
}

var (
	defaultSessions    = Quota{Total: 2000, PerUser: 1500, PerNamespace: 500, PerPod: 100}
	defaultConnections = Quota{Total: 4000, PerUser: 3000, PerNamespace: 1500, PerPod: 1000}
)

const defaultConnectionsPerSession = 512

// refusedRetryDelay is when a client that was refused may try again.
const refusedRetryDelay = 2 * time.Second

// StreamLimiter enforces StreamLimits for all handlers that share it. Make one with
// NewStreamLimiter. It is safe for concurrent use.
type StreamLimiter struct {
	user        func(*http.Request) string
	sessions    usage
	connections usage
	perSession  int
}

// NewStreamLimiter returns a limiter with the given limits.
func NewStreamLimiter(limits StreamLimits) *StreamLimiter {
	return &StreamLimiter{
		user:        limits.User,
		sessions:    newUsage("sessions (exec, attach, port-forward and logs)", limits.Sessions, defaultSessions),
		connections: newUsage("forwarded connections", limits.Connections, defaultConnections),
		perSession:  cmp.Or(limits.ConnectionsPerSession, defaultConnectionsPerSession),
	}
}

// orDefault is l, or a limiter with the defaults.
func (l *StreamLimiter) orDefault() *StreamLimiter {
	if l == nil {
		return NewStreamLimiter(StreamLimits{})
	}
	return l
}

// consumer is what uses up a quota.
type consumer struct{ user, namespace, pod string }

func (l *StreamLimiter) consumer(r *http.Request, namespace, pod string) consumer {
	c := consumer{namespace: namespace, pod: pod}
	if l.user != nil {
		c.user = l.user(r)
	}
	return c
}

// session takes a session of the quota until release is called. Where there is none
// left, its error is answered with 429.
func (l *StreamLimiter) session(c consumer) (release func(), err error) {
	return l.sessions.acquire(c)
}

// errTooMany is the reason of all refusals.
var errTooMany = errors.New("end some, or try again later")

// usage counts what is used of a quota.
type usage struct {
	of    string
	quota Quota

	mu    sync.Mutex
	total int
	by    map[consumer]int // of a user, of a user in a namespace, of a pod
}

func newUsage(of string, quota, defaults Quota) usage {
	return usage{of: of, by: map[consumer]int{}, quota: Quota{
		Total:        cmp.Or(quota.Total, defaults.Total),
		PerUser:      cmp.Or(quota.PerUser, defaults.PerUser),
		PerNamespace: cmp.Or(quota.PerNamespace, defaults.PerNamespace),
		PerPod:       cmp.Or(quota.PerPod, defaults.PerPod),
	}}
}

func (u *usage) acquire(c consumer) (release func(), err error) {
	ofUser, ofNamespace, ofPod := consumer{user: c.user}, consumer{user: c.user, namespace: c.namespace}, consumer{namespace: c.namespace, pod: c.pod}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, check := range []struct {
		used, limit int
		whose       string
	}{
		{u.by[ofPod], u.quota.PerPod, fmt.Sprintf("of pod %s/%s", c.namespace, c.pod)},
		{u.by[ofNamespace], share(u.quota.PerNamespace, u.by[ofNamespace], u.quota.PerUser, u.by[ofUser]), fmt.Sprintf("of one user in namespace %s", c.namespace)},
		{u.by[ofUser], share(u.quota.PerUser, u.by[ofUser], u.quota.Total, u.total), "of one user"},
		{u.total, u.quota.Total, "of this node"},
	} {
		if check.limit >= 0 && check.used >= check.limit {
			return nil, errdefs.AsRetryAfter(fmt.Errorf("too many %s %s, the limit is %d at once: %w",
				u.of, check.whose, check.limit, errTooMany), refusedRetryDelay)
		}
	}
	keys := [...]consumer{ofUser, ofNamespace, ofPod}
	u.total++
	for _, key := range keys {
		u.by[key]++
	}
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.total--
		for _, key := range keys {
			if u.by[key]--; u.by[key] == 0 {
				delete(u.by, key)
			}
		}
	}), nil
}

// share returns how much one may use whose limit is that of one that is alone, where
// all together use usedByAll of the limit for all.
func share(limit, used, limitOfAll, usedByAll int) int {
	if limit < 0 || limitOfAll <= limit {
		return limit
	}
	left := max(limitOfAll-(usedByAll-used), 0)
	return (limit*left + limitOfAll - 1) / limitOfAll
}

// connections are those of one port-forward session.
type connections struct {
	limiter  *StreamLimiter
	consumer consumer

	mu   sync.Mutex
	open int
}

// acquire acquires a connection of the quota until release is called.
func (c *connections) acquire() (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit := c.limiter.perSession; limit >= 0 && c.open >= limit {
		return nil, errdefs.AsRetryAfter(fmt.Errorf("too many connections of this port-forward, the limit is %d at once: %w", limit, errTooMany), refusedRetryDelay)
	}
	shared, err := c.limiter.connections.acquire(c.consumer)
	if err != nil {
		return nil, err
	}
	c.open++
	return sync.OnceFunc(func() {
		shared()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open--
	}), nil
}
