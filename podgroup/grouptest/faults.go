package grouptest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Refusal is how a service refuses a call. The codec gives it the form of the service.
type Refusal struct {
	Status        int
	Code, Message string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Code, r.Message) }

// Message returns the text of an error for its answer: of a Refusal it is the message alone.
func Message(err error) string {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Message
	}
	return err.Error()
}

// ErrQuota is the error of a call beyond the quota of its action (SetQuota).
var ErrQuota = errors.New("there were too many calls")

// HTTPStatus returns the status of the answer of most services to what Serve, or a method of a
// World, has returned: 200 for nil. For ErrLost it breaks the connection off.
func HTTPStatus(err error) int { return statusOf(err, http.StatusBadRequest) }

// statusOf is HTTPStatus with the status of errors that are not known.
func statusOf(err error, otherwise int) int {
	refusal, refused := errors.AsType[*Refusal](err)
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, ErrLost):
		panic(http.ErrAbortHandler)
	case errors.Is(err, ErrQuota):
		return http.StatusTooManyRequests
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrTokenReused), errors.Is(err, ErrBusy):
		return http.StatusConflict
	case refused:
		return refusal.Status
	}
	return otherwise
}

// fault is what becomes of the next calls of an action.
type fault struct {
	left    int
	refused error
	delay   time.Duration
	lost    bool
}

// Refuse refuses the next count calls of an action with err, which may be a Refusal.
func (w *World) Refuse(action string, count int, err error) {
	w.addFault(action, &fault{left: count, refused: err})
}

// Delay has the next count calls of an action take longer.
func (w *World) Delay(action string, count int, d time.Duration) {
	w.addFault(action, &fault{left: count, delay: d})
}

// Lose has the next count calls of an action succeed, and their answers be lost.
func (w *World) Lose(action string, count int) {
	w.addFault(action, &fault{left: count, lost: true})
}

func (w *World) addFault(action string, f *fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[action] = append(w.faults[action], f)
}

// SetQuota limits the calls of an action within any minute; with an empty action, of all
// together. Those beyond are ErrQuota.
func (w *World) SetQuota(action string, callsPerMinute int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quotas[action] = callsPerMinute
}

// Serve makes a call of an action, with its faults: it waits, refuses the call, or
// executes it by f and returns ErrLost. Each call is counted, also one that is refused.
func (w *World) Serve(ctx context.Context, action string, f func() error) error {
	if d := w.take(action, func(f *fault) bool { return f.delay > 0 }); d != nil {
		timer := time.NewTimer(d.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !w.count(action) {
		return ErrQuota
	}
	if r := w.take(action, func(f *fault) bool { return f.refused != nil }); r != nil {
		return r.refused
	}
	lost := w.take(action, func(f *fault) bool { return f.lost }) != nil
	if err := f(); err != nil {
		return err
	}
	if lost {
		return ErrLost
	}
	return nil
}

// take uses up a fault of an action, if there is one of the kind.
func (w *World) take(action string, kind func(*fault) bool) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults[action] {
		if f.left > 0 && kind(f) {
			f.left--
			return f
		}
	}
	return nil
}

// count counts a call, and reports whether it is within the quotas.
func (w *World) count(action string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	within := true
	for _, of := range []string{action, ""} {
		w.calls[of] = append(w.calls[of], now)
		if quota, ok := w.quotas[of]; ok {
			recent := slices.DeleteFunc(slices.Clone(w.calls[of]), func(at time.Time) bool { return now.Sub(at) >= time.Minute })
			within = within && len(recent) <= quota
		}
	}
	if !within {
		w.refused++
	}
	return within
}

// Calls returns how often an action was called, or with an empty action how many calls
// there were.
func (w *World) Calls(action string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls[action])
}

// Traffic returns how many bytes clients have sent to the service, and received, over the
// connections that count (see Serve).
func (w *World) Traffic() (sent, received int) {
	return int(w.sent.Load()), int(w.received.Load())
}

// Refused is how many calls were beyond a quota.
func (w *World) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// page is what a token stands for.
type page struct {
	units []Unit
	at    time.Time
}

// SetPageLife has the tokens of pages be valid for a time, instead of a minute.
func (w *World) SetPageLife(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pageLife = d
}

// Page returns at most limit units, and the token of the next page: opaque, valid once, and
// for a minute, as those of services. units are the whole list for the first page, without a
// token.
func (w *World) Page(units []Unit, token string, limit int) (found []Unit, next string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if token != "" {
		known, ok := w.pages[token]
		delete(w.pages, token)
		if !ok || w.now().Sub(known.at) > w.pageLife {
			return nil, "", &Refusal{Status: http.StatusBadRequest, Code: "InvalidToken", Message: "the token of the page is not valid"}
		}
		units = known.units
	}
	if len(units) > limit {
		next = rand.Text()
		w.pages[next] = page{units[limit:], w.now()}
		units = units[:limit]
	}
	return units, next, nil
}
