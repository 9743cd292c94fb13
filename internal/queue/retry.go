package queue

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// outcome is what is to become of a key that was handled.
type outcome struct {
	again bool          // it is to be tried again
	delay time.Duration // after that
	moves bool          // it is to be handled in the long lane
}

// handle calls the handler.
func (q *Queue) handle(it *item) outcome {
	err := q.call(it)
	if err != nil && q.ctx.Err() != nil {
		return outcome{}
	}
	if err == ErrTakesLong && it.in.which == quickLane { //nolint:errorlint // it is returned as it is
		return outcome{moves: true}
	}
	if err != nil {
		if again, delay := q.retry(it, err); again {
			return outcome{again: true, delay: delay}
		}
	}
	if it.tries > 0 {
		it.tries = 0
		q.limiter.Forget(it.key)
	}
	return outcome{}
}

// call makes an error of a panic, so that one pod cannot take down the rest.
func (q *Queue) call(it *item) (err error) {
	key := it.key
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while handling %s in queue %s: %v", key, q.name, r)
			q.logger(key).WithField("stack", string(debug.Stack())).Error(err)
		}
	}()
	return q.handler(it.in.ctx, key)
}

// logger says in each line which key it is about.
func (q *Queue) logger(key string) log.Logger { return log.G(q.about(q.ctx, key)) }

// retry decides about a key that failed.
func (q *Queue) retry(it *item, err error) (again bool, delay time.Duration) {
	if it.tries == 0 {
		it.since = it.asked
	}
	it.tries++
	logger := q.logger(it.key).WithField("queue", q.name).WithField("tries", it.tries).WithError(err)
	delay, giveUp := q.delay(q.ctx, it, err)
	if giveUp != nil {
		logger.WithField("cause", giveUp.Error()).Error("Giving up")
		return false, 0
	}
	logger = logger.WithField("delay", delay.String())
	if it.tries%10 == 1 { // often enough to be seen, not so often as to drown the rest
		logger.Warn("Will try again")
	} else {
		logger.Debug("Will try again")
	}
	return true, delay
}

// delay asks shouldRetry, and the limiter if that leaves it to it. Both may be
// somebody else's code: one that panics gets the longest delay.
func (q *Queue) delay(ctx context.Context, it *item, err error) (delay time.Duration, giveUp error) {
	defer func() {
		if r := recover(); r != nil {
			q.logger(it.key).WithField("stack", string(debug.Stack())).Errorf("panic while deciding on the retry of %s in queue %s: %v", it.key, q.name, r)
			delay, giveUp = MaxDelay, nil
		}
	}()
	if q.shouldRetry != nil {
		named, giveUp := q.shouldRetry(ctx, it.key, it.tries, it.since, err)
		if giveUp != nil {
			return 0, giveUp
		}
		if named != nil {
			return *named, nil
		}
	}
	return q.limiter.When(it.key), nil
}
