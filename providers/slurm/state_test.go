package slurm

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

// listed is a list with one pod: a job in a state, and lines of the pod's state.
func listed(t *testing.T, row string, lines ...string) *listing {
	t.Helper()
	text := "now 2000\n"
	if row != "" {
		text += "row " + row + "\n"
	}
	for _, line := range append([]string{`tags {"UID":"u","PodName":"one"}`, "container main image", "container side image", "created 1000", "job 7"}, lines...) {
		text += "./one/state:" + line + "\n"
	}
	l, err := parseListing(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func rowIn(state string) string {
	return fmt.Sprintf(`7|%s|1000|1001|1100|n1|None|one|{"UID":"u"}`, state)
}

func TestPhases(t *testing.T) {
	running := []string{"begun 7 n1 192.0.2.7", "start main 0 1001", "start side 0 1001"}
	for _, c := range []struct {
		name, row string
		lines     []string
		final     bool
		phase     podgroup.Phase
		failure   string
		disrupted bool
	}{
		{name: "in the queue", row: rowIn("PENDING"), phase: podgroup.Pending},
		{name: "has its machine, but its script has not begun", row: rowIn("CONFIGURING"), phase: podgroup.Pending},
		{name: "runs", row: rowIn("RUNNING"), lines: running, phase: podgroup.Running},
		{name: "is being deleted", row: rowIn("RUNNING"), lines: append(running, "deleted 30"), phase: podgroup.Stopping},
		{name: "has succeeded", row: rowIn("COMPLETED"), lines: append(running, "exit main 0 0 1002", "exit side 0 0 1002", "end 1003"), phase: podgroup.Succeeded},
		{name: "its end is seen before squeue's", row: rowIn("RUNNING"), lines: append(running, "exit main 0 0 1002", "exit side 0 0 1002", "end 1003"), phase: podgroup.Succeeded},
		{name: "one has failed", row: rowIn("FAILED"), lines: append(running, "exit main 0 3 1002", "exit side 0 0 1002", "end 1003"), phase: podgroup.Failed},
		{name: "squeue has forgotten it", lines: append(running, "exit main 0 0 1002", "exit side 0 0 1002", "end 1003"), phase: podgroup.Succeeded},
		{name: "ended, and the file may be old", row: rowIn("COMPLETED"), lines: running, phase: podgroup.Running},
		{name: "ended without a word", row: rowIn("FAILED"), lines: running, final: true, phase: podgroup.Failed, failure: "JobEnded"},
		{name: "forgotten without a word", lines: running, final: true, phase: podgroup.Failed, failure: "JobEnded"},
		{name: "preempted", row: rowIn("PREEMPTED"), lines: append(running, "exit main 0 143 1002", "exit side 0 143 1002", "end 1003"), phase: podgroup.Failed, failure: "Preempted", disrupted: true},
		{name: "the machine failed", row: rowIn("NODE_FAIL"), lines: running, final: true, phase: podgroup.Failed, failure: "NodeFailure", disrupted: true},
		{name: "was asked to stop, and squeue does not say why yet", row: rowIn("COMPLETING"), lines: append(running, "stopped 1990", "exit main 0 143 1991", "exit side 0 143 1991", "end 1991"), phase: podgroup.Running},
		{name: "was asked to stop, and squeue had answered before there was a job", lines: append(running, "stopped 1990", "exit main 0 143 1991", "exit side 0 143 1991", "end 1991"), phase: podgroup.Running},
		{name: "was asked to stop, and squeue has forgotten it", lines: append(running, "stopped 1002", "exit main 0 143 1003", "exit side 0 143 1003", "end 1003"), phase: podgroup.Failed},
		{name: "was asked to stop, and squeue never says why", row: rowIn("COMPLETING"), lines: append(running, "stopped 1002", "exit main 0 143 1003", "exit side 0 143 1003", "end 1003"), phase: podgroup.Failed},
		{name: "ended a moment before its script was asked to stop", row: rowIn("COMPLETING"), lines: append(running, "exit main 0 143 1989", "exit side 0 143 1990", "stopped 1990", "end 1991"), phase: podgroup.Running},
		{name: "was killed, and squeue does not say why yet", row: rowIn("RUNNING"), lines: append(running, "exit main 0 137 1990", "exit side 0 137 1991", "end 1991"), phase: podgroup.Running},
		{name: "was killed, and squeue never says why", row: rowIn("RUNNING"), lines: append(running, "exit main 0 137 1002", "exit side 0 137 1002", "end 1003"), phase: podgroup.Failed},
		{name: "was killed when its machine failed", row: rowIn("NODE_FAIL"), lines: append(running, "exit main 0 137 1990", "exit side 0 137 1990", "end 1991"), phase: podgroup.Failed, failure: "NodeFailure", disrupted: true},
		{name: "was queued again", row: rowIn("PENDING"), lines: running, final: true, phase: podgroup.Failed, failure: "JobRequeued", disrupted: true},
		{name: "was queued again, and is held", row: rowIn("SPECIAL_EXIT"), lines: running, final: true, phase: podgroup.Failed, failure: "JobRequeued", disrupted: true},
		{name: "was queued again, and its reservation is deleted", row: rowIn("RESV_DEL_HOLD"), lines: running, final: true, phase: podgroup.Failed, failure: "JobRequeued", disrupted: true},
		{name: "was begun by another cluster of a federation", row: rowIn("REVOKED"), final: true, phase: podgroup.Pending},
		{name: "runs in another cluster of a federation", row: rowIn("REVOKED"), lines: running, final: true, phase: podgroup.Running},
		{name: "never started", row: rowIn("CANCELLED"), phase: podgroup.Failed, failure: "JobCancelled"},
		{name: "its time was up", row: rowIn("TIMEOUT"), lines: append(running, "exit main 0 143 1002", "exit side 0 143 1002", "end 1003"), phase: podgroup.Failed, failure: "DeadlineExceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			units, left := listed(t, c.row, c.lines...).units(func(*job) bool { return c.final })
			if len(units) != 1 || len(left) != 0 {
				t.Fatalf("the units are %v, left %v", units, left)
			}
			u := units[0]
			if u.ID != "7" || u.Phase != c.phase || u.Data != "one" {
				t.Errorf("unit %q of %v has phase %d", u.ID, u.Data, u.Phase)
			}
			if reason := ""; u.Failure != nil {
				if reason = u.Failure.Reason; reason != c.failure || u.Failure.Disrupted != c.disrupted {
					t.Errorf("the failure is %+v", u.Failure)
				}
			} else if c.failure != "" {
				t.Errorf("there is no failure")
			}
		})
	}
}

// What has no machine says why, in all states in which it waits.
func TestQueuedJobs(t *testing.T) {
	for state, waits := range map[string]bool{
		"PENDING": true, "RESV_DEL_HOLD": true, "SPECIAL_EXIT": true, "REQUEUED": true, "REQUEUE_HOLD": true, "REQUEUE_FED": true,
		"CONFIGURING": false, "RUNNING": false, "STOPPED": false, "SIGNALING": false, "SUSPENDED": false, "COMPLETING": false, "COMPLETED": false,
	} {
		l := listed(t, rowIn(state))
		units, _ := l.units(func(*job) bool { return false })
		if got := units[0].Containers[0].Now.Message; (got == "Job 7 is in the queue: None") != waits || (len(units[0].Events) == 1) != waits {
			t.Errorf("of a job that is %s the message is %q, the events are %v", state, got, units[0].Events)
		}
		if l.jobs[0].runs() && waits {
			t.Errorf("a job that is %s runs", state)
		}
	}
}

func TestContainers(t *testing.T) {
	units, _ := listed(t, rowIn("RUNNING"), "begun 7 n1 192.0.2.7", "start main 0 1001", "exit main 0 1 1002", "again main", "start side 0 1003", "unknown line", "start", "exit nobody 0 0 1").units(nil)
	main, side := units[0].Container("main"), units[0].Container("side")
	if main.Now.State != podgroup.Waiting || main.Now.Reason != "CrashLoopBackOff" || main.Last.ExitCode != 1 || main.Restarts != 0 || side.Now.State != podgroup.Executing {
		t.Errorf("the containers are %+v and %+v", main, side)
	}
	units, _ = listed(t, rowIn("RUNNING"), "begun 7 n1 192.0.2.7", "start main 0 1001", "exit main 0 1 1002", "again main", "start main 1 1005").units(nil)
	if main = units[0].Container("main"); main.Now.State != podgroup.Executing || main.Last.ExitCode != 1 || main.Restarts != 1 || main.Now.Started.Unix() != 1005 {
		t.Errorf("the container is %+v", main)
	}
	units, _ = listed(t, rowIn("OUT_OF_MEMORY"), "begun 7 n1 192.0.2.7", "start main 0 1001", "exit main 0 137 1002", "end 1003").units(nil)
	if main = units[0].Container("main"); main.Now.Reason != "OOMKilled" {
		t.Errorf("the container is %+v", main)
	}
}

// What is left of pods is removed once nothing of them runs, and not before.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		name string
		l    *listing
		left bool
	}{
		{"deleted, and runs", listed(t, rowIn("RUNNING"), "begun 7 n1 x", "deleted 30"), false},
		{"deleted, and has ended", listed(t, rowIn("CANCELLED"), "begun 7 n1 x", "deleted 30", "end 1100"), true},
		{"deleted, and has ended just now", listed(t, rowIn("CANCELLED"), "begun 7 n1 x", "deleted 30", "end 1995"), false}, // its end is shown first
		{"deleted, and has never begun", listed(t, rowIn("CANCELLED"), "deleted 30"), true},
		{"deleted, and is forgotten", listed(t, "", "begun 7 n1 x", "deleted 30"), true},
		{"not deleted", listed(t, rowIn("COMPLETED"), "begun 7 n1 x"), false},
	} {
		if _, left := c.l.units(func(*job) bool { return true }); slices.Equal(left, []string{"one"}) != c.left {
			t.Errorf("of a pod that is %s left is %v", c.name, left)
		}
	}
	for created, left := range map[int]int{1000: 1, 1900: 0, 0: 0} { // the creation may go on
		l, err := parseListing(fmt.Sprintf("now 2000\n./one/state:tags {\"UID\":\"u\"}\n./one/state:created %d\n", created))
		if err != nil {
			t.Fatal(err)
		}
		if units, names := l.units(nil); len(units) != 0 || len(names) != left {
			t.Errorf("of a pod without a job that was created at %d the units are %v, left is %v", created, units, names)
		}
	}
}

// Of two jobs of a pod one has the directory, and the other is a unit that can be deleted.
func TestTwoJobs(t *testing.T) {
	l := listed(t, rowIn("RUNNING")+"\nrow 8|PENDING|1005|N/A|N/A||None|one|{\"UID\":\"u\"}\nrow 9|RUNNING|1|1|N/A|n1|None|another|(null)", "begun 7 n1 x", "start main 0 1001")
	units, left := l.units(nil)
	if len(units) != 2 || len(left) != 0 || units[0].ID != "8" || units[1].ID != "7" || len(units[0].Containers) != 0 {
		t.Errorf("the units are %+v", units)
	}
	// The number of a job that is long forgotten is used again for another's.
	other := strings.Replace(rowIn("RUNNING"), "|one|", "|another|", 1)
	units, _ = listed(t, other, "begun 7 n1 x", "start main 0 1001", "exit main 0 0 1002", "start side 0 1001", "exit side 0 0 1002", "end 1003").units(nil)
	if i := slices.IndexFunc(units, func(u podgroup.Unit) bool { return u.Data == "one" }); i < 0 || units[i].Phase != podgroup.Succeeded {
		t.Errorf("the units are %+v", units)
	}
}

func TestListsThatCannotBeTrue(t *testing.T) {
	for _, text := range []string{"", "now 2000\nrow 7|RUNNING\n"} {
		if l, err := parseListing(text); err == nil {
			t.Errorf("of %q the jobs are %v", text, l.jobs)
		}
	}
}

// The user may have other jobs, whose names, comments and reasons have any text.
func TestJobsOfOthers(t *testing.T) {
	for _, other := range []string{
		"reason|a\nb|(null)", "reason|a\nmissing", "reason|a\n\n|(null)", "reason|b|c\nd", "a\nb|c|d", "reason|a\nnow b|c", "reason|a|now\nnow\nnow 7", "reason|a|b|c||", "reason|a\nrows|b|c", "reason|a\n./b|c",
	} {
		other = "row 8|RUNNING|1005|1006|1100|n1|" + other
		for _, rows := range []string{rowIn("RUNNING") + "\n" + other, strings.TrimPrefix(other, "row ") + "\nrow " + rowIn("RUNNING")} {
			l := listed(t, rows, "begun 7 n1 x", "start main 0 1001")
			if units, left := l.units(nil); len(units) != 1 || len(left) != 0 || units[0].ID != "7" || units[0].Phase != podgroup.Running || l.missing || l.now.Unix() != 2000 {
				t.Errorf("beside the job %q the units are %+v, left %v, at %v", other, units, left, l.now)
			}
		}
	}
	// What lacks its state or times is none that has a line end.
	if l, err := parseListing("now 2000\nrow 7|RUNNING|1005|1006|N/A|n1\n"); err == nil {
		t.Errorf("the jobs are %v", l.jobs)
	}
}

func TestAccounting(t *testing.T) {
	l := listed(t, "", "begun 7 n1 x", "start main 0 1001")
	if ids := l.forgotten(); !slices.Equal(ids, []string{"7"}) {
		t.Fatalf("the jobs that squeue has forgotten are %v", ids)
	}
	l.addAccounting("7|COMPLETED|1100|of-another-pod\n7|NODE_FAIL|1100|one\n8|CANCELLED by 0|1100|two\n")
	units, _ := l.units(func(*job) bool { return true })
	if u := units[0]; u.Phase != podgroup.Failed || u.Failure == nil || !u.Failure.Disrupted || u.Ended.Unix() != 1100 {
		t.Errorf("the unit is %+v", u)
	}
}

// slurmdbd has jobs as RUNNING for ever whose ends it has missed: Slurm calls them runaway jobs.
func TestRunawayJobs(t *testing.T) {
	for _, state := range []string{"RUNNING", "PENDING", "SUSPENDED", "REQUEUED"} {
		l := listed(t, "", "begun 7 n1 x", "start main 0 1001")
		l.addAccounting("7|" + state + "|Unknown|one\n")
		units, _ := l.units(func(j *job) bool { return j.state == "" })
		if u := units[0]; u.Phase != podgroup.Failed || u.Failure == nil || u.Failure.Reason != "JobEnded" {
			t.Errorf("of a job that is %s there the unit is %+v", state, u)
		}
	}
}

// stubborn is a Runner with a directory of a pod that cannot be removed.
type stubborn struct{ removed int }

func (s *stubborn) Run(_ context.Context, c login.Command) error {
	switch c.Verb {
	case "list":
		_, err := io.WriteString(c.Stdout, "now 2000\n./one/state:tags {\"UID\":\"u\"}\n./one/state:created 1000\n")
		return err
	case "remove":
		s.removed++
	}
	return &login.Error{Code: 1, Text: "rm: cannot remove 'one': Permission denied"}
}

// A directory that cannot be removed is tried again, and not by each list.
func TestDirectoryThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &stubborn{}
		b := newBackend(Config{}, runner)
		list := func(want int) {
			t.Helper()
			if _, err := b.List(t.Context(), nil, ""); err != nil || runner.removed != want {
				t.Errorf("the list fails with %v, and the directory was removed %d times", err, runner.removed)
			}
		}
		list(1)
		list(1)
		time.Sleep(removeAgain)
		list(2)
	})
}

// A job that has ended without a word is believed later if Slurm does not list it at all, and
// from the beginning if it was listed meanwhile.
func TestSettle(t *testing.T) {
	for state, wait := range map[string]time.Duration{"FAILED": 30 * time.Second, "": 3 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newBackend(Config{}, nil)
			final := func() bool { return b.settle()(&job{id: "7", state: state}) }
			if final() {
				t.Errorf("state %q is final at once", state)
			}
			time.Sleep(wait - time.Second)
			if final() {
				t.Errorf("state %q is final early", state)
			}
			time.Sleep(time.Second)
			if !final() {
				t.Errorf("state %q is not final after %v", state, wait)
			}
			b.settle() // a list in which it runs
			if final() {
				t.Errorf("state %q is final although it ran meanwhile", state)
			}
		})
	}
}
