package fault

import (
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// dice are thrown for names.
type dice struct {
	seed uint64

	mu     sync.Mutex
	thrown map[string]uint64
}

func newDice(seed uint64) *dice { return &dice{seed: seed, thrown: map[string]uint64{}} }

// throw returns the numbers for the next call of a name.
func (d *dice) throw(name string) *rand.Rand {
	d.mu.Lock()
	n := d.thrown[name]
	d.thrown[name] = n + 1
	d.mu.Unlock()
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, name) // never fails
	return rand.New(rand.NewPCG(d.seed^hash.Sum64(), n))
}

// upTo returns a time of at most limit, and of at least a hundredth of it.
func upTo(random *rand.Rand, limit time.Duration) time.Duration {
	least := limit/100 + 1
	return least + time.Duration(random.Int64N(int64(limit-least)+1))
}

// weather is the plan of the moment.
type weather struct {
	mu   sync.Mutex
	plan Plan
	calm chan struct{} // closed when calm comes; nil while it is calm
}

// brew makes plan the plan of the moment.
func (w *weather) brew(plan Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan = plan
	if w.calm == nil {
		w.calm = make(chan struct{})
	}
}

func (w *weather) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan = nil
	if w.calm != nil {
		close(w.calm)
		w.calm = nil
	}
}

// now returns the plan, and a channel that is closed when calm comes, nil if it
// is calm.
func (w *weather) now() (Plan, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plan, w.calm
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
