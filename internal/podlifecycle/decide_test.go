package podlifecycle

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	file, err := os.Open("testdata/decide.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := map[verb]bool{}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, "|")
		if len(parts) != 3 {
			t.Fatalf("line %d: want three parts, got %q", number, line)
		}
		v, err := parseView(parts[1])
		if err != nil {
			t.Fatalf("line %d: %v", number, err)
		}
		a := decide(v)
		seen[a.verb] = true
		got := string(a.verb)
		if a.verb == doWait {
			got += " " + a.after.String()
		}
		if a.guarded {
			got += " guarded"
		}
		if want := strings.TrimSpace(parts[2]); got != want {
			t.Errorf("line %d, %s: got %s, want %s", number, strings.TrimSpace(parts[0]), got, want)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, v := range []verb{doNothing, doWait, doInspect, doCreate, doUpdate, doStop, doKill, doRelease, doRemove, doLose, doConfirm} {
		if !seen[v] {
			t.Errorf("no line leads to %s", v)
		}
	}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func parseView(text string) (view, error) {
	v := view{now: epoch, deadline: epoch.Add(time.Hour), patience: time.Minute}
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		var err error
		when := func(at *time.Time) {
			var d time.Duration
			d, err = time.ParseDuration(value)
			*at = epoch.Add(d)
		}
		switch name {
		case "desired":
			v.desired = desired(value)
		case "observed":
			v.observed = observed(value)
		case "older":
			v.olderFirst = true
		case "begun":
			v.begun = true
		case "stopped":
			v.stopped = true
		case "cancelled":
			v.cancelled = true
		case "ran":
			v.ran = true
		case "changed":
			v.changed = true
		case "removed":
			v.removed = true
		case "unconfirmed":
			v.unconfirmed = true
		case "requested":
			v.requested = requested(value)
		case "requestedAt":
			when(&v.requestedAt)
		case "inspectedAt":
			when(&v.inspectedAt)
		case "deadline":
			when(&v.deadline)
		case "missing":
			v.missing, err = strconv.Atoi(value)
		case "missedAt":
			when(&v.missedAt)
		case "patience":
			v.patience, err = time.ParseDuration(value)
		case "suspicious":
			v.suspicious = true
		default:
			err = fmt.Errorf("no such field: %s", name)
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// eachView calls f with every combination of what a view can hold.
func eachView(f func(view)) {
	pick := []bool{false, true}
	for _, w := range []desired{desiredGone, desiredRun, desiredStop, desiredDone} {
		for _, k := range []observed{unknown, absent, held} {
			for _, older := range pick {
				for _, asked := range []requested{requestedNone, requestedStop, requestedKill} {
					for _, ago := range []time.Duration{0, 4 * time.Second, 5 * time.Second, time.Minute, time.Hour} {
						for _, missing := range []int{0, 1, 2, 3, 4} {
							for bits := range 128 {
								v := view{
									progress: progress{
										observed: k, requested: asked, requestedAt: epoch.Add(-ago), inspectedAt: epoch.Add(-ago / 2),
										missing: missing, missedAt: epoch.Add(-ago * 2), ran: pick[bits>>1&1], removed: pick[bits>>3&1],
									},
									now: epoch, desired: w, olderFirst: older, patience: time.Minute, suspicious: pick[bits>>6&1],
									stopped: pick[bits&1], changed: pick[bits>>2&1],
									deadline: epoch.Add(10 * time.Second),
								}
								if pick[bits>>4&1] {
									v.deadline = epoch.Add(-time.Second)
								}
								if w == desiredGone {
									v.unconfirmed = pick[bits>>5&1]
								}
								f(v)
							}
						}
					}
				}
			}
		}
	}
}

// What must hold in any view.
func TestDecideNeverDoesHarm(t *testing.T) {
	eachView(func(v view) {
		a := decide(v)
		current := v.desired != desiredGone
		waits := v.olderFirst && !v.ran
		rule := func(ok bool, text string) {
			if !ok {
				t.Fatalf("%s, but %+v leads to %s", text, v, a.verb)
			}
		}
		if v.observed == unknown {
			rule(a.verb == doInspect || waits && a.verb == doNothing, "what is not known is asked first")
			return
		}
		switch a.verb {
		case doCreate:
			rule(current && v.desired == desiredRun, "only a pod that is to run is created (1, 6)")
			rule(v.observed == absent && !v.ran, "a pod is created once (2, 8)")
			rule(!v.olderFirst, "an older pod of the name goes first (1)")
		case doUpdate:
			rule(current && v.desired == desiredRun && v.observed == held && v.changed, "only a change of a held pod is an update")
		case doStop, doKill:
			rule(!current || v.desired != desiredRun, "a pod that is to run is not stopped (3)")
			rule(v.observed == held || v.ran, "what never was is not deleted")
			rule(!v.unconfirmed || v.requested != requestedNone, "a list that lacks a pod ends nothing (3)")
			rule(a.verb == doStop || v.requested != requestedNone && !v.now.Before(v.deadline), "nothing is killed that was not asked to stop, nor before its grace period ends (4)")
		case doRemove:
			rule(current && v.desired == desiredStop, "a pod leaves the API only when that was asked for (4)")
			rule(v.observed == absent || v.requested != requestedNone && v.stopped, "a pod leaves the API when the provider has stopped it, not before (4)")
			rule(!v.removed, "a pod is removed once")
		case doRelease:
			rule(!current && v.observed == held && v.stopped && v.requested != requestedNone, "a pod is let go of when it has stopped (1)")
		case doLose:
			rule(current && v.desired == desiredRun && v.observed == absent && v.ran, "only a pod that is to run, and did, is lost (8)")
			rule(v.missing >= lostAfter && !v.inspectedAt.Before(v.missedAt.Add(v.patience)), "a pod is lost when it was missed often, and for long (8)")
			rule(!v.suspicious, "no pod is lost while too many are missing (8)")
		case doWait:
			rule(a.after > 0, "no busy loops (10)")
			rule(a.after <= recheckInterval || a.after <= missedInterval && missesPod(v) || a.guarded, "waits are short")
		case doNothing:
			rule(current || v.observed == absent || waits, "nothing leaks (3)")
			rule(v.desired != desiredStop || v.removed, "a deletion is not forgotten (4)")
		}
	})
}
