package queue

import "time"

// item is what a queue knows of a key, as long as there is something to know.
// The queue's pool guards it; what is said below to be the handler's belongs to
// the worker while running is set.
type item struct {
	queue *Queue
	key   string

	due      bool        // is to be handled: it stands in line, or will once it is not running
	dueAt    time.Time   // since when
	lane     int         // in which it stands, or will
	running  bool        // a handler is at it
	in       *lane       // in which it is handled
	released bool        // that handler does not count against the workers
	began    time.Time   // when that was started
	timer    *time.Timer // of the delay after which it is due; else nil
	end      time.Time   // of that delay
	waits    time.Time   // since when it counts as waiting; zero: it does not

	asked time.Time // the handler's: when this try was asked for
	stood time.Time // the handler's: since when it stood in line
	tries int       // the handler's: those that failed since the last success
	since time.Time // the handler's: when the first of them was asked for

	line place[item]
	work func() // handles it; made once, so that starting a worker costs no memory
}

// newItem takes one that is not used, if there is one: a key that comes and goes
// costs no memory. The pool is locked.
func (p *Pool) newItem(q *Queue, key string) *item {
	it, ok := p.spare.Get().(*item)
	if !ok {
		it = &item{}
		it.line.of = it
		it.work = func() { growStack(0); p.work(it) }
	}
	it.queue, it.key = q, key
	return it
}

// release gives it back. Nobody may hold it any more but a timer that was
// stopped too late, which finds another one in its place.
func (p *Pool) release(it *item) {
	*it = item{line: it.line, work: it.work}
	p.spare.Put(it)
}

// idle tells whether there is nothing to know of the key.
func (it *item) idle() bool {
	return !it.due && !it.running && it.timer == nil && it.waits.IsZero()
}

func (it *item) stopTimer() {
	if it.timer != nil {
		it.timer.Stop()
		it.timer = nil
	}
}
