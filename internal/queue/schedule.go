package queue

import "time"

// The way of a key. All of these are called with the pool locked, but for fire
// and end, which the runtime calls.

func (q *Queue) item(key string) *item {
	it := q.items[key]
	if it == nil {
		it = q.pool.newItem(q, key)
		q.items[key] = it
	}
	return it
}

// count has the key count as waiting, until it is handled.
func (q *Queue) count(it *item) {
	if it.waits.IsZero() {
		it.waits = time.Now()
	}
}

// schedule has the key handled after delay, unless it is to be sooner anyway.
func (q *Queue) schedule(it *item, delay time.Duration) {
	if delay <= 0 || q.ctx == nil {
		q.ready(it)
		return
	}
	end := time.Now().Add(delay)
	if it.due || it.timer != nil && !end.Before(it.end) {
		return
	}
	it.stopTimer()
	it.end = end
	var timer *time.Timer
	timer = time.AfterFunc(delay, func() { q.fire(it, &timer) })
	it.timer = timer
}

// fire ends a delay, unless it was stopped meanwhile.
func (q *Queue) fire(it *item, timer **time.Timer) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if it.timer != *timer {
		return
	}
	q.ready(it)
	q.pool.dispatch()
}

// ready puts the key in line, or has it put there when it is not running any
// more.
func (q *Queue) ready(it *item) {
	it.stopTimer()
	if it.due {
		if it.lane != quickLane && !it.running {
			q.lanes[it.lane].line.remove(&it.line)
			q.stand(it, quickLane)
		}
		return
	}
	it.due, it.dueAt = true, time.Now()
	if q.ctx != nil { // else Start counts it: nobody would ever take it back
		q.meter.added()
	}
	it.lane = quickLane
	if !it.running {
		q.stand(it, quickLane)
	}
}

// stand puts a key that is due in the line of a lane.
func (q *Queue) stand(it *item, which int) {
	it.lane = which
	q.lanes[which].line.push(&it.line)
	q.lanes[which].offer()
}

// take takes the first key in a lane's line to be handled; nil if there is none.
func (q *Queue) take(l *lane) *item {
	if q.ctx.Err() != nil { // end is about to be called, or was
		return nil
	}
	it := l.line.pop()
	if it == nil {
		return nil
	}
	l.handling++
	q.active++
	it.in, it.released = l, false
	it.due, it.running, it.began, it.stood = false, true, time.Now(), it.dueAt
	it.asked = it.waits
	if it.asked.IsZero() {
		it.asked = it.began
	}
	it.waits = time.Time{}
	q.meter.began(it)
	return it
}

// finish takes back a key that was handled, with what its handler has come to.
func (q *Queue) finish(it *item, end outcome) {
	in := it.in
	if !it.released {
		in.handling--
	}
	q.active--
	it.running = false
	q.meter.ended(it)
	if q.ended {
		delete(q.items, it.key)
		if q.active == 0 {
			close(q.done)
		}
		return
	}
	if end.again {
		q.meter.retries.Inc()
		q.count(it)
	}
	switch {
	case it.due: // was added meanwhile
		q.stand(it, it.lane)
	case end.moves:
		it.waits = it.asked // it is the same try
		it.due, it.dueAt = true, time.Now()
		q.meter.moved()
		q.stand(it, longLane)
	case end.again:
		q.schedule(it, end.delay)
	}
	if it.idle() {
		delete(q.items, it.key)
		q.pool.release(it)
	}
	in.offer()
}

// end drops what was not begun.
func (q *Queue) end() {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	q.ended = true
	for i := range q.lanes {
		q.lanes[i].line = fifo[item]{}
	}
	for key, it := range q.items {
		it.stopTimer()
		if it.due {
			q.meter.dropped()
		}
		it.due, it.waits = false, time.Time{}
		if !it.running {
			delete(q.items, key)
		}
	}
	if q.active == 0 {
		close(q.done)
	}
}
