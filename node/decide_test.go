package node

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	v := view{now: epoch, uid: "a", heldUID: "a", deadline: epoch.Add(time.Hour), patience: time.Minute}
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		var err error
		when := func(at *time.Time) {
			var d time.Duration
			d, err = time.ParseDuration(value)
			*at = epoch.Add(d)
		}
		switch name {
		case "wish":
			if v.wish = wish(value); v.wish == wishGone {
				v.uid = ""
			}
		case "provider":
			v.provider = knowledge(value)
		case "held":
			v.heldUID = types.UID(value)
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
		case "doubtful":
			v.doubtful = true
		case "asked":
			v.asked = request(value)
		case "askedAt":
			when(&v.askedAt)
		case "inspected":
			when(&v.inspected)
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
	for _, w := range []wish{wishGone, wishRun, wishStop, wishDone} {
		for _, k := range []knowledge{unknown, absent, held} {
			for _, uid := range []types.UID{"a", "b"} {
				for _, asked := range []request{requestNone, requestStop, requestKill} {
					for _, ago := range []time.Duration{0, 4 * time.Second, 5 * time.Second, time.Minute, time.Hour} {
						for _, missing := range []int{0, 1, 2, 3, 4} {
							for bits := range 128 {
								v := view{
									now: epoch, wish: w, uid: "a", heldUID: uid, provider: k,
									asked: asked, askedAt: epoch.Add(-ago), inspected: epoch.Add(-ago / 2), missing: missing,
									missedAt: epoch.Add(-ago * 2), patience: time.Minute, suspicious: pick[bits>>6&1],
									stopped: pick[bits&1], ran: pick[bits>>1&1], changed: pick[bits>>2&1], removed: pick[bits>>3&1],
									deadline: epoch.Add(10 * time.Second),
								}
								if pick[bits>>4&1] {
									v.deadline = epoch.Add(-time.Second)
								}
								if w == wishGone {
									v.uid, v.doubtful = "", pick[bits>>5&1]
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

// What must hold whatever the view.
func TestDecideNeverDoesHarm(t *testing.T) {
	eachView(func(v view) {
		a := decide(v)
		current := v.wish != wishGone && v.heldUID == v.uid
		rule := func(ok bool, text string) {
			if !ok {
				t.Fatalf("%s, but %+v leads to %s", text, v, a.verb)
			}
		}
		if v.provider == unknown {
			rule(a.verb == doInspect, "who does not know asks first")
			return
		}
		switch a.verb {
		case doCreate:
			rule(current && v.wish == wishRun, "only a pod that is to run is created (1, 6)")
			rule(v.provider == absent && !v.ran, "a pod is created once (2, 8)")
		case doUpdate:
			rule(current && v.wish == wishRun && v.provider == held && v.changed, "only a change of a held pod is an update")
		case doStop, doKill:
			rule(!current || v.wish != wishRun, "a pod that is to run is not stopped (3)")
			rule(v.provider == held || v.ran, "what never was is not deleted")
			rule(!v.doubtful || v.asked != requestNone, "a list that lacks a pod ends nothing (3)")
			rule(a.verb == doStop || v.asked != requestNone && !v.now.Before(v.deadline), "nothing is killed that was not asked to stop, nor before its grace period ends (4)")
		case doRemove:
			rule(current && v.wish == wishStop, "a pod leaves the API only when that was asked for (4)")
			rule(v.provider == absent || v.asked != requestNone && v.stopped, "a pod leaves the API when the provider has stopped it, not before (4)")
			rule(!v.removed, "a pod is removed once")
		case doRelease:
			rule(!current && v.provider == held && v.stopped && v.asked != requestNone, "a pod is let go of when it has stopped (1)")
		case doLose:
			rule(current && v.wish == wishRun && v.provider == absent && v.ran, "only a pod that is to run, and did, is lost (8)")
			rule(v.missing >= lostAfter && !v.inspected.Before(v.missedAt.Add(v.patience)), "a pod is lost when it was missed often, and for long (8)")
			rule(!v.suspicious, "no pod is lost while too many are missing (8)")
		case doWait:
			rule(a.after > 0, "no busy loops (10)")
			rule(a.after <= recheckInterval || a.after <= missedInterval && missesPod(v) || a.guarded || v.provider == absent && v.wish == wishGone, "waits are short")
		case doNothing:
			rule(v.wish != wishGone || v.provider == absent, "nothing leaks (3)")
			rule(v.wish != wishStop || !current || v.removed, "a deletion is not forgotten (4)")
			rule(v.provider != held || current, "nothing of another pod stays (1)")
		}
	})
}
