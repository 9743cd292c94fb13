package nodecheck

import (
	"context"
	"errors"
	"sync"
)

// bases are the checks that find out whether a capability is there at all.
var bases = map[Capability]string{Core: "pod-runs", Commands: "exit-zero", Logs: "logs", Exec: "exec-output"}

// lacking is the error of such a check if the capability is not there. Others that need it
// could only fail, after a long wait each.
type lacking struct{ error }

func (l lacking) Unwrap() error { return l.error }

// Series makes each check at most once, and none for which another has found that what it
// needs is not there. It is safe for concurrent use.
type Series struct {
	ctx      context.Context
	node     *Node
	selected func(Check) bool

	mu   sync.Mutex
	made map[string]*made // by name, as soon as they are begun
}

// made is a check that is made.
type made struct {
	done   chan struct{} // closed when there is the result
	result Result
}

// NewSeries makes a Series for the checks that are selected.
func NewSeries(ctx context.Context, n *Node, selected func(Check) bool) *Series {
	return &Series{ctx: ctx, node: n, selected: selected, made: map[string]*made{}}
}

// Result makes a check, if it was not made, and those that it depends on.
func (s *Series) Result(c Check) Result {
	s.mu.Lock()
	m, begun := s.made[c.Name]
	if !begun {
		m = &made{done: make(chan struct{})}
		s.made[c.Name] = m
	}
	s.mu.Unlock()
	if !begun {
		m.result = s.run(c)
		close(m.done)
	}
	<-m.done
	return m.result
}

func (s *Series) run(c Check) Result {
	for _, base := range s.basesOf(c) {
		if r := s.Result(base); r.lacks {
			return Result{Check: c, Outcome: Skipped, Blocked: true, Why: base.Name + " has failed, without which this cannot pass"}
		}
	}
	return c.Run(s.ctx, s.node)
}

// basesOf returns the selected checks that a check depends on.
func (s *Series) basesOf(c Check) (found []Check) {
	if c.noPods {
		return nil
	}
	needed := map[string]bool{bases[Core]: true}
	for _, capability := range c.Needs {
		needed[bases[capability]] = true
	}
	for _, other := range Checks() {
		if needed[other.Name] && other.Name != c.Name && s.selected(other) {
			found = append(found, other)
		}
	}
	return found
}

// lacks reports whether an error says that a capability is not there.
func lacks(err error) bool {
	var l lacking
	return errors.As(err, &l)
}
