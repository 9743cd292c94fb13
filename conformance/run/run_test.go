package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/conformance/internal/junit"
)

// fakeSuite is a suite of the specs a to e: b fails, c hangs until it is
// interrupted, d is skipped, and e kills the process. It takes the specs from the focus.
const fakeSuite = `#!/bin/sh
for arg; do case $arg in
--version) echo v9.9.9; exit ;;
--ginkgo.json-report=*) report=${arg#*=} ;;
--ginkgo.focus=*) focus=${arg#*=} ;;
esac; done
specs=$(echo "$focus" | sed 's/^(?://; s/)\$$//; s/|/ /g')
sep=; out=
add() { out="$out$sep{\"LeafNodeText\":\"$1\",\"State\":\"$2\",\"StartTime\":\"$3\",\"RunTime\":1500000000,\"Failure\":{\"Message\":\"$4\"}}"; sep=,; }
stopped=
trap 'stopped=1' INT
for spec in $specs; do
	echo ------------------------------
	if [ "$stopped" ]; then add $spec skipped 0001-01-01T00:00:00Z; continue; fi
	case $spec in
	a) add a passed 2026-01-01T00:00:00Z ;;
	b) add b failed 2026-01-01T00:00:00Z 'wait:\nit is broken\nmore' ;;
	c) for i in $(seq 2400); do [ "$stopped" ] || sleep 0.05; done; add c interrupted 2026-01-01T00:00:00Z 'Interrupted by User' ;;
	d) add d skipped 2026-01-01T00:00:00Z 'not here' ;;
	e) kill -9 $$ ;;
	esac
done
printf '%s' "[{\"SpecReports\":[$out]}]" >"$report"
`

func runFake(t *testing.T, specs, expected string, args ...string) (string, string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"suite": fakeSuite, "specs": specs, "expected": expected} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := run(t.Context(), append([]string{
		"-kubeconfig", "none", "-node", "n", "-e2e", filepath.Join(dir, "suite"), "-procs", "1",
		"-specs", filepath.Join(dir, "specs"), "-expected", filepath.Join(dir, "expected"), "-results", filepath.Join(dir, "results"),
	}, args...))
	table, _ := os.ReadFile(filepath.Join(dir, "results", "results.md"))
	junit, _ := os.ReadFile(filepath.Join(dir, "results", "junit.xml"))
	return string(table), string(junit), err
}

func TestExpectedFailures(t *testing.T) {
	table, junit, err := runFake(t, "a\nb\nd\n", "# Why.\nb\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 specs in", "1 passed, 1 failed, 0 left out, 1 skipped, 0 not run",
		"| a | passed | 1.5 |  |", "| b | failed (known to fail) | 1.5 | Why. (wait: it is broken) |", "| d | skipped | 1.5 | not here |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if !strings.Contains(junit, `failures="1"`) || !strings.Contains(junit, `<failure message="wait: it is broken">`) {
		t.Errorf("junit.xml:\n%s", junit)
	}
}

func TestWhatCannotPassIsLeftOut(t *testing.T) {
	table, junit, err := runFake(t, "a\nb\n", "# It needs wings.\n- b\n", "-setup", "a machine")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Kubernetes v9.9.9", "a machine", "1 passed, 0 failed, 1 left out", "| b | left out | 0.0 | It needs wings. |"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if !strings.Contains(junit, `<skipped message="It needs wings.">`) || !strings.Contains(junit, `<property name="setup" value="a machine">`) {
		t.Errorf("junit.xml:\n%s", junit)
	}
}

// What failed runs again, the others' results stay.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	before := junit.Suite{Seconds: 60, Begin: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Cases: []junit.Case{
		{Name: "a", Failure: &junit.Message{Text: "flaked"}}, {Name: "b", Failure: &junit.Message{Text: "old"}},
		{Name: "e", Seconds: 7}, {Name: "c", Skipped: &junit.Message{Text: "It needs wings."}},
	}}
	data, err := before.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "junit.xml"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err = runFake(t, "a\nb\ne\nc\n", "# It needs wings.\n- c\n", "-again", "-results", dir)
	if err == nil || !strings.Contains(err.Error(), "failed: b: wait: it is broken") {
		t.Errorf("got %v", err)
	}
	table, err := os.ReadFile(filepath.Join(dir, "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2026-01-02: 4 specs in 1m", "2 passed, 1 failed, 1 left out",
		"| a | passed | 1.5 | passed when it ran again; before: flaked |\n| b | failed | 1.5 | wait: it is broken |\n| e | passed | 7.0 |  |\n| c | left out | 0.0 | It needs wings. |",
	} {
		if !strings.Contains(string(table), want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// What comes after a spec that was interrupted did not run, though ginkgo calls it
// skipped.
func TestSpecsAfterAnInterruptDidNotRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	report := `[{"SpecReports": [
		{"LeafNodeText": "a", "State": "interrupted", "StartTime": "2026-01-02T03:04:05Z"},
		{"LeafNodeText": "b", "State": "skipped", "StartTime": "2026-01-02T03:04:05Z"},
		{"LeafNodeText": "c", "State": "skipped", "StartTime": "2026-01-02T03:04:05Z", "Failure": {"Message": "not here"}}]}]`
	if err := os.WriteFile(path, []byte(report), 0o644); err != nil {
		t.Fatal(err)
	}
	results, err := readReport(path, []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, ran := results["b"]; ran || results["a"].state != failed || results["c"].state != skipped {
		t.Errorf("got %+v", results)
	}
}

// Pods on one network cannot listen at the same port.
func TestSharedNetworkPutsPortsInLanes(t *testing.T) {
	tcp, grpc, web := "x tcp:8080 liveness probe", "should *not* be restarted with a GRPC liveness probe", "should *not* be restarted with a /healthz http liveness probe"
	names := []string{tcp, "a", grpc, web}
	s := newScheduler(names, options{procs: 5, sharedNetwork: true}, &bytes.Buffer{})
	if len(s.lanes) != 2 || !slices.Equal(s.lanes[0], []string{web}) || !slices.Equal(s.lanes[1], []string{tcp, grpc}) || !slices.Equal(s.queue, []string{"a"}) || len(s.slow) > 0 {
		t.Errorf("lanes %q, queue %q, slow %q", s.lanes, s.queue, s.slow)
	}
	if s := newScheduler(names, options{procs: 5}, &bytes.Buffer{}); len(s.lanes) > 0 {
		t.Errorf("with networks of their own, lanes %q", s.lanes)
	}
}

func TestLanesRun(t *testing.T) {
	table, _, err := runFake(t, "a\nx tcp:8080 liveness probe\n", "", "-shared-network")
	if err == nil || !strings.Contains(err.Error(), "failed: x tcp:8080 liveness probe: the suite has no spec of this name") || !strings.Contains(table, "| a | passed |") {
		t.Errorf("%v\n%s", err, table)
	}
}

// The pods of the spec before may still be there.
func TestAwaitFree(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		asked <- err
		_ = l.Close()
	}()
	awaitFree(t.Context(), l.Addr().(*net.TCPAddr).Port)
	_ = l.Close() // ends an Accept that nobody has answered
	if err := <-asked; err != nil {
		t.Fatalf("it did not see that the port was taken: %v", err)
	}
}

func TestFailureThatDependsOnTheMachine(t *testing.T) {
	for _, spec := range []string{"a", "b"} {
		if table, _, err := runFake(t, spec+"\n", "# Why.\n? "+spec+"\n"); err != nil {
			t.Errorf("%v\n%s", err, table)
		}
	}
}

func TestUnexpected(t *testing.T) {
	for name, test := range map[string]struct {
		specs, expected string
		args            []string
		want            string
	}{
		"failure": {"a\nb\n", "", nil, "failed: b: wait: it is broken"},
		"success": {"a\n", "# Why.\na\n", nil, "passed, although it is expected to fail: a"},
		// The time is that of the one that passes too.
		"time is up":       {"c\na\n", "", []string{"-spec-timeout", "5s"}, "failed: c: the spec was interrupted after 5s"},
		"no such spec":     {"a\nz\n", "", nil, "failed: z: the suite has no spec of this name"},
		"the suite dies":   {"e\n", "", nil, "failed: e: the suite ended before this spec: signal: killed"},
		"nothing selected": {"# none\n", "", nil, "no spec of"},
	} {
		t.Run(name, func(t *testing.T) {
			table, _, err := runFake(t, test.specs, test.expected, test.args...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want an error that says: %s", err, test.want)
			}
			if strings.HasPrefix(test.specs, "c") && !strings.Contains(table, "| a | passed |") {
				t.Errorf("what came after it did not run:\n%s", table)
			}
		})
	}
}

func TestOneThatDiesTakesNoOtherWithIt(t *testing.T) {
	table, _, err := runFake(t, "a\na2\ne\nb\n", "# Why.\nb\na2\n")
	if err == nil || !strings.Contains(table, "| a | passed |") || !strings.Contains(table, "| b | failed (known to fail) |") || !strings.Contains(table, "| e | failed |") {
		t.Fatalf("got %v\n%s", err, table)
	}
}

func TestSlowOnesCanBeLeftOut(t *testing.T) {
	table, _, err := runFake(t, "a\nx should *not* be restarted\n", "", "-skip-slow")
	if err != nil || strings.Contains(table, "restarted") {
		t.Fatalf("got %v\n%s", err, table)
	}
}

func TestBatchesGetSmaller(t *testing.T) {
	names := strings.Fields(strings.Repeat("x ", 100))
	s := newScheduler(names, options{procs: 5}, &bytes.Buffer{})
	total, last := 0, maxBatch
	for {
		batch, _ := s.next()
		if len(batch) == 0 {
			break
		}
		if len(batch) > last {
			t.Fatalf("a batch of %d after one of %d", len(batch), last)
		}
		total, last = total+len(batch), len(batch)
	}
	if total != 100 || last != 1 {
		t.Fatalf("%d specs, the last batch of %d", total, last)
	}
}

func TestWatchdogIsFedBySeparators(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	synctest.Test(t, func(t *testing.T) {
		barked := false
		dog := newWatchdog(3*time.Minute, func() { barked = true })
		defer dog.stop()
		tee := &tee{file: file, dog: dog}
		for range 8 {
			time.Sleep(2 * time.Minute)
			for _, part := range []string{"text\n-----------", "-------------------\n"} {
				if _, err := tee.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if synctest.Wait(); barked {
			t.Fatal("it barked although it was fed")
		}
		time.Sleep(3 * time.Minute)
		if synctest.Wait(); !barked {
			t.Error("it did not bark")
		}
	})
}
