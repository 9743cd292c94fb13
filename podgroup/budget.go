package podgroup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// Action is a kind of call of a Backend. Its text is the value of metric labels.
type Action string

// The actions.
const (
	ActionCreate Action = "create"
	ActionDelete Action = "delete"
	ActionList   Action = "list" // and Getter.Get
	ActionWatch  Action = "watch"
	ActionUpdate Action = "update"
	ActionLog    Action = "log"
	ActionExec   Action = "exec" // and Attach, Forward
	ActionUsage  Action = "usage"
	ActionReport Action = "report"
)

// AnyAction is the key of the limit of all calls together.
const AnyAction Action = ""

// maxBudgetWait is how long a call waits for its turn. A longer wait is the caller's, who
// has other things to do meanwhile.
const maxBudgetWait = 5 * time.Second

// Budget keeps the calls to a service within the quotas of an account, and stops them for a
// while after a refusal for too many calls. All nodes of a process that use the same
// account should have the same Budget. It is safe for concurrent use.
type Budget struct {
	limits map[Action]*rate.Limiter

	mu    sync.Mutex
	quiet map[Action]silence
}

// silence is a time in which no calls are made, and the error that says so.
type silence struct {
	until    time.Time
	err      error
	refusals int // since the last call that was not refused
}

// maxSilence is how long calls are stopped after refusals in a row, unless the service asks for
// more: those that are refused may count, too, for a quota of calls a minute.
const maxSilence = time.Minute

// NewBudget returns a Budget of so many calls a minute, by action; without one for
// AnyAction the total is not limited. A tenth of them may be made at once.
func NewBudget(callsPerMinute map[Action]int) *Budget {
	b := &Budget{limits: map[Action]*rate.Limiter{}, quiet: map[Action]silence{}}
	for action, calls := range callsPerMinute {
		// Within any minute there are at most burst calls more than the rate allows.
		burst := max(1, calls/10)
		b.limits[action] = rate.NewLimiter(rate.Limit(float64(max(1, calls-burst))/60), burst)
	}
	return b
}

// wait waits for the turn of a call, if that comes within patience and before the deadline of
// ctx. The error is that the service has asked for silence, or that the turn comes later,
// which counts as if the service had refused the call.
func (b *Budget) wait(ctx context.Context, action Action, patience time.Duration) error {
	if err := b.silent(action); err != nil {
		return err
	}
	now := time.Now()
	var delay time.Duration
	var taken []*rate.Reservation
	for _, of := range []Action{action, AnyAction} {
		if limit, ok := b.limits[of]; ok {
			reservation := limit.ReserveN(now, 1)
			taken = append(taken, reservation)
			delay = max(delay, reservation.DelayFrom(now))
		}
	}
	giveBack := func() {
		for _, reservation := range taken {
			reservation.CancelAt(now)
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	if delay > max(patience, 0) {
		giveBack()
		return throttled{errdefs.AsRetryAfter(fmt.Errorf("the calls a minute that the node may make for %s are used up", action), delay)}
	}
	if delay <= 0 {
		return nil
	}
	if err := periodic.Sleep(ctx, delay); err != nil {
		giveBack()
		return err
	}
	return b.silent(action)
}

// Do makes a call that a Backend makes beside the one that it was called for, which is already
// within the budget: Options.Budget has to be the same Budget. action may be one of the
// backend's own. Do waits for the turn of the call, five seconds at most, and does not make it if
// the turn comes later or while the service wants silence for the action: the error then is that
// of Throttled. An error of call is returned as it is; one of Throttled begins a silence. The call
// has the deadline of ctx, and is not measured.
func (b *Budget) Do(ctx context.Context, action Action, call func() error) error {
	if err := b.wait(ctx, action, maxBudgetWait); err != nil {
		return err
	}
	err := call()
	b.record(action, err)
	return err
}

// silent returns the error for which calls of an action are not made at the moment.
func (b *Budget) silent(action Action) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.quiet[action]
	if left := time.Until(s.until); left > 0 {
		return Throttled(s.err, left)
	}
	return nil
}

// record notes whether a call was refused because there were too many. The silence doubles
// with each refusal in a row.
func (b *Budget) record(action Action, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.quiet[action]
	ended := !time.Now().Before(s.until)
	if !isThrottled(err) {
		if ended {
			delete(b.quiet, action)
		}
		return
	}
	delay, _ := errdefs.RetryAfter(err)
	if ended { // else the call was under way at the last refusal
		s.refusals++
		delay = max(delay, min(throttledDelay<<min(s.refusals-1, 10), maxSilence))
	}
	if until := time.Now().Add(delay); until.After(s.until) { // one that was under way may name less
		s.until, s.err = until, err
	}
	b.quiet[action] = s
}
