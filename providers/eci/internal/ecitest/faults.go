package ecitest

import "time"

// fault is a failure of the next calls of an action.
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

// Lose makes the next count calls of an action succeed, but breaks the connection
// before the response.
func (s *Server) Lose(action string, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[action] = append(s.faults[action], &fault{left: count, lost: true})
}

// loses reports whether the response to the next call is lost. The caller holds s.mu.
func (s *Server) loses(action string) bool {
	for _, f := range s.faults[action] {
		if f.left > 0 && f.lost {
			f.left--
			return true
		}
	}
	return false
}

// faulty returns the error of the next call, or nil. The caller holds s.mu.
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
