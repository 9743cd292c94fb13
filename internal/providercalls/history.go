package providercalls

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// HistoryMinutes is how far History goes back, the current minute included.
const HistoryMinutes = 30

// Minute sums up the calls of a method that returned in one minute.
type Minute struct {
	Calls  int `json:"calls"`
	Errors int `json:"errors,omitempty"`
	// Took is how long they took, all together.
	Took time.Duration `json:"tookNanoseconds,omitempty"`
}

// history has the last minutes of each method.
type history struct {
	mu      sync.Mutex
	newest  int64 // minute, since 1970
	methods map[string]*[HistoryMinutes]Minute
}

func newHistory() *history {
	h := &history{methods: map[string]*[HistoryMinutes]Minute{}}
	for _, method := range countedMethods {
		h.methods[method] = &[HistoryMinutes]Minute{}
	}
	return h
}

// record adds a call that has returned.
func (h *history) record(method string, begin time.Time, err error) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &h.methods[method][h.turn(now)]
	m.Calls++
	m.Took += now.Sub(begin)
	if err != nil && !(method == GetPod && errdefs.IsOnlyNotFound(err)) {
		m.Errors++
	}
}

// turn empties the minutes that have begun since, and returns the place of the current one.
// A clock that was set back goes on in the newest. h.mu is held.
func (h *history) turn(now time.Time) int {
	minute := now.Unix() / 60
	for next := max(h.newest+1, minute-HistoryMinutes+1); next <= minute; next++ {
		for _, minutes := range h.methods {
			minutes[next%HistoryMinutes] = Minute{}
		}
	}
	h.newest = max(h.newest, minute)
	return int(h.newest % HistoryMinutes)
}

// MethodHistory is what History has of one method.
type MethodHistory struct {
	Method string
	// Minutes are the last ones, the oldest first.
	Minutes [HistoryMinutes]Minute
	// InFlight is how many calls about pods have not returned, Oldest since when the oldest
	// of them runs.
	InFlight int
	Oldest   time.Time
}

// History returns the calls of the last minutes and of the moment, of the methods that were
// called, in the order of their names. Of a nil Metrics it is empty.
func (m *Metrics) History() []MethodHistory {
	if m == nil {
		return nil
	}
	inFlight := map[string][]Call{}
	m.running.Range(func(key, _ any) bool {
		for _, c := range key.(*Log).List() {
			inFlight[c.Method] = append(inFlight[c.Method], c)
		}
		return true
	})
	h := m.history
	h.mu.Lock()
	defer h.mu.Unlock()
	oldest := h.turn(time.Now()) + 1
	var found []MethodHistory
	for _, method := range slices.Sorted(maps.Keys(h.methods)) {
		of := MethodHistory{Method: method}
		for _, c := range inFlight[method] {
			if of.InFlight++; of.InFlight == 1 || c.Since.Before(of.Oldest) {
				of.Oldest = c.Since
			}
		}
		called := of.InFlight > 0
		for i := range of.Minutes {
			of.Minutes[i] = h.methods[method][(oldest+i)%HistoryMinutes]
			called = called || of.Minutes[i].Calls > 0
		}
		if called {
			found = append(found, of)
		}
	}
	return found
}
