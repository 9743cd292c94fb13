package ecitest

import "time"

// fault is what goes wrong with the next calls of an action.
type fault struct {
	left    int
	refused *apiError
	delay   time.Duration
	lost    bool
}

// Fail refuses the next count calls of an action, such as with 400 and
// Throttling.User.
func (s *Server) Fail(action string, count, status int, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[action] = append(s.faults[action], &fault{left: count, refused: refuse(status, code, "%s", message)})
}

// Delay lets the next count calls of an action take longer.
func (s *Server) Delay(action string, count int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[action] = append(s.faults[action], &fault{left: count, delay: d})
}

// Lose makes the next count calls of an action, but breaks the connection before
// they are answered.
func (s *Server) Lose(action string, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[action] = append(s.faults[action], &fault{left: count, lost: true})
}

// loses reports whether the answer of the next call is lost. s.mu is held.
func (s *Server) loses(action string) bool {
	for _, f := range s.faults[action] {
		if f.left > 0 && f.lost {
			f.left--
			return true
		}
	}
	return false
}

// faulty is what the next call is refused with. s.mu is held.
func (s *Server) faulty(action string) *apiError {
	for _, f := range s.faults[action] {
		if f.left > 0 && f.refused != nil {
			f.left--
			return f.refused
		}
	}
	return nil
}

func (s *Server) delay(action string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults[action] {
		if f.left > 0 && f.delay > 0 {
			f.left--
			return f.delay
		}
	}
	return 0
}
