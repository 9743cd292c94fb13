package ec2

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	// The silence after a call that was refused because there were too many doubles with each
	// refusal in a row.
	firstSilence, lastSilence = 2 * time.Second, time.Minute
)

// pace keeps the calls of an action within a rate, and makes none for a while after EC2 has refused
// one for their number. It is safe for concurrent use.
type pace struct {
	limiter *rate.Limiter

	mu    sync.Mutex
	until time.Time
	delay time.Duration
}

// newPaces returns a pace for each action: about half of what EC2 allows an account in a region,
// which others call, too.
func newPaces() map[action]*pace {
	of := func(perSecond rate.Limit, burst int) *pace { return &pace{limiter: rate.NewLimiter(perSecond, burst)} }
	return map[action]*pace{
		runInstances:      of(1, 3),
		terminate:         of(2, 20),
		describeInstances: of(5, 20),
		describeSpot:      of(2, 10),
		consoleOutput:     of(1, 3),
	}
}

// wait waits for the turn of a call.
func (p *pace) wait(ctx context.Context) error {
	if err := p.silent(); err != nil {
		return err
	}
	if err := p.limiter.Wait(ctx); err != nil {
		return errdefs.AsUnavailable(fmt.Errorf("there are too many calls of EC2 at once: %w", err))
	}
	return p.silent() // another call may have been refused meanwhile
}

// silent returns the error for which no call is made at the moment.
func (p *pace) silent() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := time.Until(p.until); left > 0 {
		return errdefs.AsRetryAfter(errdefs.AsUnavailable(fmt.Errorf("EC2 has refused too many calls: none for %v", left.Round(time.Second))), left)
	}
	return nil
}

// record records EC2's code of a call; empty for none.
func (p *pace) record(code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := time.Now(); {
	case !slices.Contains(throttled, code):
		if !now.Before(p.until) {
			p.delay = 0
		}
	case !now.Before(p.until): // else the call was under way at the last refusal
		p.delay = min(max(2*p.delay, firstSilence), lastSilence)
		p.until = now.Add(p.delay)
	}
}
