package shard

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// maxWrites bounds how many leases are written at the same time.
const maxWrites = 10

// member takes part in the sharing. It is for one goroutine.
type member struct {
	Config
	ledger *ledger
	base   context.Context // of what serves: it outlives that of Run

	renewed time.Time // its own lease
	serving map[int]*service
	ended   chan struct{} // signals that a service has
	all     sync.WaitGroup

	troubled bool // the last request has failed
	mixed    bool // others go by another number of shards
}

// service is a shard that is served.
type service struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	fence   *time.Timer // ends it when it was not renewed in time
	until   time.Time   // to which the fence is set
	renewed time.Time
	done    chan struct{} // closed when Serve has returned
}

// Run takes part in the sharing until ctx ends; then it gives away what it holds,
// and returns nil. An error means that the configuration is wrong.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	m := &member{Config: cfg, base: context.WithoutCancel(ctx), serving: map[int]*service{}, ended: make(chan struct{}, 1)}
	m.ledger = &ledger{Config: &m.Config, seen: map[string]observation{}}
	defer m.all.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			m.leave()
			return nil
		case <-m.ended:
			m.notice(ctx)
		case <-timer.C:
			m.step(ctx)
			timer.Reset(wait.Jitter(cfg.retryPeriod(), 0.2))
		}
	}
}

// step looks at the leases, and does what is to be done. What it has is renewed
// first, since that cannot wait.
func (m *member) step(ctx context.Context) {
	m.renew(ctx)
	if !m.ok(ctx, m.ledger.refresh(ctx)) {
		return // what is not known is not claimed, and nothing is given away
	}
	m.notice(ctx)
	m.renew(ctx) // what is found to be deleted
	plan := Decide(m.view(time.Now()))
	if m.known() && !m.mixed {
		m.each(ctx, plan.Claim, m.ledger.hold, func(shard int, begin time.Time) { m.serve(ctx, shard, begin) })
	}
	for _, shard := range plan.Release {
		log.G(ctx).WithField("shard", shard).Info("Giving a shard to another member")
		m.serving[shard].cancel(node.ErrHandedOver)
	}
	for _, name := range m.ledger.dead(time.Now()) {
		m.ok(ctx, m.ledger.remove(ctx, name))
	}
}

// renew renews the member's own lease and those of the shards that it has, when
// that is due, and makes again what somebody has deleted.
func (m *member) renew(ctx context.Context) {
	name, begin := m.ledger.memberName(m.Identity), time.Now()
	due := begin.Sub(m.renewed) >= m.renewInterval() || m.ledger.get(name).deleted
	if due && m.ok(ctx, m.ledger.hold(ctx, name)) {
		m.renewed = begin
	}
	m.each(ctx, Decide(m.view(time.Now())).Renew, m.ledger.renew, m.extend)
}

// known reports whether the others know of this member: one that they do not count
// would take what they take back.
func (m *member) known() bool {
	mine := m.ledger.get(m.ledger.memberName(m.Identity))
	return mine.holder() == m.Identity && !mine.deleted && time.Since(m.renewed) < m.renewDeadline()
}

// notice ends the services of shards that somebody else has, and gives away
// those whose services have ended.
func (m *member) notice(ctx context.Context) {
	var ended []int
	for shard, s := range m.serving {
		if s.ctx.Err() == nil && m.ledger.get(m.ledger.shardName(shard)).holder() != m.Identity {
			log.G(ctx).WithField("shard", shard).Warn("Another member has taken a shard")
			s.cancel(node.ErrHandedOver)
		}
		select {
		case <-s.done:
			delete(m.serving, shard)
			ended = append(ended, shard)
		default:
		}
	}
	m.each(ctx, ended, m.ledger.release, func(int, time.Time) {})
}

// view is what the decision depends on.
func (m *member) view(now time.Time) View {
	members, mixed := m.ledger.members(now)
	if mixed && !m.mixed {
		log.G(m.base).WithField("shards", m.Shards).Warn("Another process goes by another number of shards; taking none until it has gone")
	}
	m.mixed = mixed
	v := View{Now: now, Me: m.Identity, Members: members, Shards: make([]Lease, m.Shards)}
	for i := range v.Shards {
		seen, s := m.ledger.get(m.ledger.shardName(i)), m.serving[i]
		switch {
		case s != nil:
			v.Shards[i] = Lease{Holder: m.Identity, Expires: s.until, RenewAt: s.renewed.Add(m.renewInterval())}
			v.Shards[i].Ending = s.ctx.Err() != nil || !now.Before(s.until) // the fence is about to end it
			if seen.deleted {
				v.Shards[i].RenewAt = now
			}
		case seen.deleted:
			expires := seen.expires(m.LeaseDuration)
			known := seen.holder() != "" && seen.holder() != m.Identity
			v.Shards[i] = Lease{Holder: seen.holder(), Expires: expires, Ending: !known && now.Before(expires)}
		case seen.holder() == m.Identity:
			// Claimed without an answer, or lost for a while: it is as good as free.
		case seen.lease != nil:
			v.Shards[i] = Lease{Holder: seen.holder(), Expires: seen.expires(m.LeaseDuration)}
		}
	}
	return v
}

// each writes the leases of shards, and calls written for each that was, one call
// at a time, with when the request began.
func (m *member) each(ctx context.Context, shards []int, write func(ctx context.Context, lease string) error, written func(shard int, begin time.Time)) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxWrites)
	for _, shard := range shards {
		group.Go(func() error {
			begin := time.Now()
			err := write(ctx, m.ledger.shardName(shard))
			mu.Lock()
			defer mu.Unlock()
			if m.ok(ctx, err) {
				written(shard, begin)
			}
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
}

// extend sets the fence of a shard that was renewed.
func (m *member) extend(shard int, begin time.Time) {
	s := m.serving[shard]
	s.renewed, s.until = begin, begin.Add(m.renewDeadline())
	s.fence.Reset(time.Until(s.until))
}

// serve begins to serve a shard.
func (m *member) serve(ctx context.Context, shard int, begin time.Time) {
	s := &service{renewed: begin, until: begin.Add(m.renewDeadline()), done: make(chan struct{})}
	if ctx.Err() != nil || !time.Now().Before(s.until) {
		return // the answer came late
	}
	logger := log.G(ctx).WithField("shard", shard)
	logger.Info("Taking a shard")
	s.ctx, s.cancel = context.WithCancelCause(m.base)
	s.fence = time.AfterFunc(time.Until(s.until), func() {
		if s.ctx.Err() == nil {
			logger.Warn("The lease of a shard could not be renewed in time; leaving the shard to others")
		}
		s.cancel(node.ErrHandedOver)
	})
	m.serving[shard] = s
	m.all.Go(func() {
		m.Serve(s.ctx, shard)
		s.fence.Stop()
		s.cancel(nil)
		close(s.done)
		select {
		case m.ended <- struct{}{}:
		default: // the loop is about to look anyway
		}
	})
}

// leave gives away all shards. If there is no other member, what serves them
// ends for good.
func (m *member) leave() {
	ctx, cancel := context.WithTimeout(m.base, m.LeaseDuration)
	defer cancel()
	cause, leave := context.Canceled, m.ledger.remove
	members, mixed := m.ledger.members(time.Now())
	if mixed || slices.ContainsFunc(members, func(member string) bool { return member != m.Identity }) {
		// They would take a lease that is removed for one that somebody has deleted.
		cause, leave = node.ErrHandedOver, m.ledger.release
	}
	m.ok(ctx, leave(ctx, m.ledger.memberName(m.Identity)))
	for _, s := range m.serving {
		s.cancel(cause)
	}
	var group errgroup.Group
	for shard, s := range m.serving {
		group.Go(func() error {
			<-s.done
			return m.ledger.release(ctx, m.ledger.shardName(shard))
		})
	}
	m.ok(ctx, group.Wait())
	// A claim may have been granted whose answer nobody has waited for.
	if m.ok(ctx, m.ledger.refresh(ctx)) {
		for shard := range m.Shards {
			m.ok(ctx, m.ledger.release(ctx, m.ledger.shardName(shard)))
		}
	}
}

// ok reports whether err is nil. It logs an error, the first one of several in a row
// as a warning. That another member was faster is logged at debug level only.
func (m *member) ok(ctx context.Context, err error) (ok bool) {
	switch {
	case err == nil:
		m.troubled = false
		return true
	case ctx.Err() != nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		log.G(ctx).WithError(err).Debug("A lease was not written")
	case m.troubled:
		log.G(ctx).WithError(err).Debug("Still cannot share shards with others")
	default:
		m.troubled = true
		log.G(ctx).WithError(err).Warn("Cannot share shards with others; trying again until it works")
	}
	return false
}
