package providercalls

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// The history has the calls of each minute where they belong, and none that is too old.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics()
		call := func(method string, took time.Duration, err error) {
			begin := m.Begins(method)
			time.Sleep(took)
			m.Ended(method, begin, err)
		}
		of := func(method string) (minutes []Minute) {
			for _, h := range m.History() {
				if h.Method == method {
					minutes = h.Minutes[:]
				}
			}
			return minutes
		}
		if got := m.History(); len(got) != 0 {
			t.Errorf("before the first call: %v", got)
		}
		call(CreatePod, 2*time.Second, nil)
		call(CreatePod, 4*time.Second, errors.New("no"))
		call(GetPod, 0, errdefs.NotFound("no such pod")) // is an answer
		time.Sleep(5 * time.Minute)
		call(CreatePod, time.Second, nil)
		minutes := of(CreatePod)
		if got, want := minutes[HistoryMinutes-6], (Minute{Calls: 2, Errors: 1, Took: 6 * time.Second}); got != want {
			t.Errorf("five minutes ago: %v, want %v", got, want)
		}
		if got, want := minutes[HistoryMinutes-1], (Minute{Calls: 1, Took: time.Second}); got != want {
			t.Errorf("now: %v, want %v", got, want)
		}
		if got := of(GetPod)[HistoryMinutes-6]; got.Errors != 0 || got.Calls != 1 {
			t.Errorf("a pod that is not there: %v", got)
		}
		time.Sleep((HistoryMinutes - 3) * time.Minute)
		if total := sum(of(CreatePod)); total.Calls != 1 {
			t.Errorf("%d calls are left, want the last", total.Calls)
		}
		time.Sleep(24 * time.Hour)
		if got := m.History(); len(got) != 0 {
			t.Errorf("a day later: %v", got)
		}

		var calls Log
		defer m.Watch(&calls)()
		since := time.Now()
		first := calls.Begin(DeletePod, Pod{Name: "a"})
		time.Sleep(time.Second)
		second := calls.Begin(DeletePod, Pod{Name: "b"})
		got := m.History()
		if len(got) != 1 || got[0].Method != DeletePod || got[0].InFlight != 2 || !got[0].Oldest.Equal(since) {
			t.Errorf("with calls in flight: %v", got)
		}
		calls.End(first)
		calls.End(second)
	})
}

func sum(minutes []Minute) (all Minute) {
	for _, m := range minutes {
		all.Calls += m.Calls
	}
	return all
}
