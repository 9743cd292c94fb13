package queue

// fifo is a line of things in the order of their arrival. What stands in it does
// so once, and in no other: its place is part of itself, so that queueing costs
// no memory.
type fifo[T any] struct{ first, last *place[T] }

type place[T any] struct {
	of         *T
	prev, next *place[T]
}

func (f *fifo[T]) empty() bool { return f.first == nil }

func (f *fifo[T]) push(p *place[T]) {
	p.prev = f.last
	if f.first == nil {
		f.first = p
	} else {
		f.last.next = p
	}
	f.last = p
}

// remove takes out what stands in the line.
func (f *fifo[T]) remove(p *place[T]) {
	if p.prev == nil {
		f.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		f.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}

// pop returns nil if nothing is in line.
func (f *fifo[T]) pop() *T {
	p := f.first
	if p == nil {
		return nil
	}
	f.remove(p)
	return p.of
}
