package node

import (
	"errors"
	"sync"
	"time"
)

// renewals is what a process knows of its renewals of a node's lease. By that it knows
// when another process may have taken the node, without asking.
type renewals struct {
	mu   sync.Mutex
	last moment        // when the last that succeeded began: others count from later
	done moment        // the last sign that it has not stood still since: see tried
	life time.Duration // of the lease; zero: nobody renews it yet
	lost bool          // another process has taken it
}

// moment is a time by two clocks. The monotonic one stands still while the machine is
// suspended, and the wall clock may be set.
type moment struct{ monotonic, wall time.Time }

func momentOf(t time.Time) moment { return moment{t, t.Round(0)} }

// within reports whether less than d has passed, by both clocks: after a wall clock was set
// forward, what happened before it counts as longer ago than it is, until it happens again.
func (m moment) within(d time.Duration) bool {
	now := momentOf(time.Now())
	return now.monotonic.Sub(m.monotonic) < d && now.wall.Sub(m.wall) < d
}

// keep records that from now on the lease is renewed.
func (r *renewals) keep(life time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life, r.done = life, momentOf(time.Now())
}

// renewed records that a renewal which began at a time has succeeded.
func (r *renewals) renewed(began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.lost = momentOf(began), false
}

// tried records that a renewal has ended: with success, without, or by showing that another
// process has the lease. After this process has stood still for as long as the lease lasts,
// another one may have taken that: a renewal that has failed does not show it, nor does one
// that began before.
func (r *renewals) tried(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = errors.Is(err, ErrNodeTaken)
	switch {
	case err == nil:
		r.done = r.last
	case r.done.within(r.life):
		r.done = momentOf(time.Now())
	}
}

// within reports whether the last renewal that succeeded began within that time.
func (r *renewals) within(d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.within(d)
}

// nextAfter returns when that much time has passed since the last renewal that succeeded.
func (r *renewals) nextAfter(d time.Duration) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.monotonic.Add(d)
}

// since reports whether one of the times is less than the life of the lease ago, if that is
// renewed at all.
func (r *renewals) since(at *moment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.life == 0 || !r.lost && at.within(r.life)
}

// MayBegin reports whether this process may begin something for the node: not while its
// lease was not renewed for its duration, since another process may have taken the
// node. A nil Claim, one without leases, and one whose lease no NodeController renews
// always allow it.
func (c *Claim) MayBegin() bool {
	return c == nil || c.renewals.since(&c.renewals.last)
}

// MayGoOn reports whether this process may go on with what it has begun for the node,
// and end it. It may while the API server is away, but not after it has stood still (was
// stopped, or its machine suspended) for as long as the lease lasts, until it has looked
// at the lease again. A nil Claim, one without leases, and one whose lease no
// NodeController renews always allow it.
func (c *Claim) MayGoOn() bool {
	return c == nil || c.renewals.since(&c.renewals.done)
}
