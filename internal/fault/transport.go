package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Transport stands before an API server. It is safe for concurrent use.
type Transport struct {
	inner http.RoundTripper
	dice  *dice
	weather

	// MaxDelay is the longest Delay, MaxPartition the longest Partition that a
	// request begins, MaxWatch how long a watch lasts at most that is to end. Set
	// them before the first request, if at all; they are 2 s, 30 s and 20 s.
	MaxDelay, MaxPartition, MaxWatch time.Duration

	mu      sync.Mutex
	cut     chan struct{} // closed when the partition is over; nil while there is none
	silent  bool          // the partition swallows requests rather than refuse them
	ends    *time.Timer
	watches map[*watchBody]struct{}
}

// NewTransport returns a calm Transport before inner.
func NewTransport(inner http.RoundTripper, seed uint64) *Transport {
	return &Transport{
		inner:        inner,
		dice:         newDice(seed),
		MaxDelay:     2 * time.Second,
		MaxPartition: 30 * time.Second,
		MaxWatch:     20 * time.Second,
		watches:      map[*watchBody]struct{}{},
	}
}

// Break has requests go wrong as planned from now on.
func (t *Transport) Break(plan Plan) { t.brew(plan) }

// Calm has nothing more go wrong: it ends a partition, and the watches that
// have stalled.
func (t *Transport) Calm() {
	t.clear()
	t.Heal()
}

// Partition cuts the way to the server for d. In a silent one requests wait until
// it is over, and fail then, and watches stay open but say nothing; otherwise all
// of them fail at once. It replaces one that lasts.
func (t *Transport) Partition(d time.Duration, silent bool) {
	t.Heal()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut, t.silent = make(chan struct{}), silent
	t.ends = time.AfterFunc(d, t.Heal)
	for w := range t.watches {
		if silent {
			w.stall()
		} else {
			w.drop()
		}
	}
}

// Heal ends a partition, if there is one, and the watches that have stalled.
func (t *Transport) Heal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut != nil {
		close(t.cut)
		t.ends.Stop()
		t.cut = nil
	}
	for w := range t.watches {
		if w.stalled() {
			w.drop()
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.roundTrip(request)
	if err != nil && request.Body != nil {
		_ = request.Body.Close() // as a RoundTripper must
	}
	return response, err
}

func (t *Transport) roundTrip(request *http.Request) (*http.Response, error) {
	plan, calm := t.now()
	if calm == nil {
		return t.pass(request, nil, nil)
	}
	random := t.dice.throw(nameOfRequest(request))
	fault := plan.draw(random, anyRequest)
	if fault[Delay] {
		if err := pause(request.Context(), upTo(random, t.MaxDelay)); err != nil {
			return nil, err
		}
	}
	if fault[Partition] {
		t.Partition(upTo(random, t.MaxPartition), random.IntN(2) == 0)
	}
	writes := request.Method != http.MethodGet
	from := request.URL.Query().Get("resourceVersion")
	switch {
	case fault[TooMany]:
		return answer(request, http.StatusTooManyRequests, 1+random.IntN(3)), nil
	case fault[Internal]:
		return answer(request, http.StatusInternalServerError, 0), nil
	case fault[Unavailable]:
		return answer(request, http.StatusServiceUnavailable, random.IntN(2)), nil
	case fault[Conflict] && writes:
		return answer(request, http.StatusConflict, 0), nil
	case fault[Expired] && !writes && from != "" && from != "0":
		return answer(request, http.StatusGone, 0), nil
	case fault[Refused]:
		return nil, refused()
	case plan[Forbidden] > 0 && readsObject(request) && random.Float64() < plan[Forbidden]:
		return answer(request, http.StatusForbidden, 0), nil
	}
	return t.pass(request, fault, random)
}

// pass takes a request to the server, unless there is a partition, and the
// answer back. random is nil where there is no fault.
func (t *Transport) pass(request *http.Request, fault map[Kind]bool, random *rand.Rand) (*http.Response, error) {
	if err := t.cross(request.Context()); err != nil {
		return nil, err
	}
	response, err := t.inner.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if isWatch(request) {
		body := newWatchBody(response.Body, t.forget)
		t.mu.Lock()
		t.watches[body] = struct{}{}
		t.mu.Unlock()
		response.Body = body
		if fault[StallWatch] || fault[DropWatch] {
			body.end(upTo(random, t.MaxWatch), fault[StallWatch])
		}
		return response, nil
	}
	if fault[LostAnswer] || t.cross(request.Context()) != nil {
		_ = response.Body.Close()
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return response, nil
}

// cross returns an error if there is a partition.
func (t *Transport) cross(ctx context.Context) error {
	t.mu.Lock()
	cut, silent := t.cut, t.silent
	t.mu.Unlock()
	switch {
	case cut == nil:
		return nil
	case !silent:
		return refused()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-cut:
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
	}
}

func (t *Transport) forget(w *watchBody) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watches, w)
}

func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// readsObject reports whether a request reads ConfigMaps or Secrets.
func readsObject(request *http.Request) bool {
	path := request.URL.Path
	return request.Method == http.MethodGet && (strings.Contains(path, "/configmaps") || strings.Contains(path, "/secrets"))
}

func isWatch(request *http.Request) bool {
	watch := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && (watch == "1" || watch == "true")
}

// nameOfRequest is the name for which dice are thrown. Events, whose names never
// come again, share one.
func nameOfRequest(request *http.Request) string {
	path := request.URL.Path
	if before, _, ok := strings.Cut(path, "/events/"); ok {
		path = before + "/events"
	}
	return fmt.Sprintf("%s %s %t", request.Method, path, isWatch(request))
}
