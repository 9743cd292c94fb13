package api

import "sync"

// calls counts the provider calls of one connection, so that its handler does
// not return before them. Its zero value is ready.
type calls struct {
	mu       sync.Mutex
	finished bool
	running  sync.WaitGroup
}

// start reports whether another call may begin; if so, end must follow.
func (c *calls) start() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return false
	}
	c.running.Add(1)
	return true
}

func (c *calls) end() { c.running.Done() }

// finish lets no more calls begin, and waits for those that have.
func (c *calls) finish() {
	c.mu.Lock()
	c.finished = true
	c.mu.Unlock()
	c.running.Wait()
}
