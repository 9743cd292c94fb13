//go:build integration

package kubectl

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestLogs compares what kubectl prints with the whole log of the same
// container, for any lines of it.
func TestLogs(t *testing.T) {
	n, u := startNode(t), user{namespace: newNamespace(t)}
	// Its container starts again and again, and so has a previous one.
	runPod(t, u.namespace, "again", n.podSpec(corev1.Container{Name: "c", Image: "test"}), map[string]string{"mock.virtual-kubelet.io/run-for": "2s"})
	runPod(t, u.namespace, "steady", n.podSpec(
		corev1.Container{Name: "one", Image: "test"}, corev1.Container{Name: "two", Image: "test"}), nil)
	logs := func(args ...string) string {
		t.Helper()
		return u.run(t, append([]string{"logs", "steady", "-c", "one"}, args...)...)
	}

	all := logs()
	lines := strings.Split(strings.TrimSuffix(all, "\n"), "\n")
	if len(lines) < 2 {
		t.Fatalf("the log has too few lines for this test: %q", all)
	}

	t.Run("tail", func(t *testing.T) {
		if got := logs("--tail=0"); got != "" {
			t.Errorf("--tail=0 printed %q", got)
		}
		if got := logs("--tail=1"); strings.Count(got, "\n") != 1 || !strings.Contains(logs(), got) {
			t.Errorf("--tail=1 printed %q", got)
		}
		if got := logs("--tail=100000"); !strings.HasPrefix(got, all) {
			t.Errorf("--tail=100000 printed %q, which does not begin with %q", got, all)
		}
		if got := logs("--tail=-1"); !strings.HasPrefix(got, all) {
			t.Errorf("--tail=-1 printed %q, which does not begin with %q", got, all)
		}
	})

	t.Run("timestamps", func(t *testing.T) {
		for i, line := range stampedLines(t, logs("--timestamps")) {
			if i < len(lines) && line.text != lines[i] {
				t.Errorf("line %d is %q with a timestamp and %q without", i, line.text, lines[i])
			}
		}
	})

	t.Run("since", func(t *testing.T) {
		if got := logs("--since=1h"); !strings.HasPrefix(got, all) {
			t.Errorf("--since=1h printed %q, which does not begin with %q", got, all)
		}
		first := stampedLines(t, logs("--timestamps"))[0].at
		time.Sleep(time.Until(first.Add(2 * time.Second))) // until that line is old
		oldest := time.Now().Add(-time.Second)
		for _, line := range stampedLines(t, logs("--since=1s", "--timestamps")) {
			if line.at.Before(oldest) {
				t.Errorf("--since=1s printed %v, which was written before %v", line, oldest)
			}
		}
	})

	t.Run("since-time", func(t *testing.T) {
		begin := stampedLines(t, logs("--timestamps"))[0].at
		if got := logs("--since-time=" + begin.Add(-time.Second).Format(time.RFC3339)); !strings.HasPrefix(got, all) {
			t.Errorf("since a moment before the first line: %q, which does not begin with %q", got, all)
		}
		after := begin.Add(2 * time.Second).Truncate(time.Second)
		for _, line := range stampedLines(t, logs("--timestamps", "--since-time="+after.Format(time.RFC3339))) {
			if line.at.Before(after) {
				t.Errorf("since %v: the line %v", after, line)
			}
		}
		if got := logs("--since-time=" + time.Now().Add(time.Hour).Format(time.RFC3339)); got != "" {
			t.Errorf("since a time to come: %q", got)
		}
	})

	t.Run("limit-bytes", func(t *testing.T) {
		if got := logs("--limit-bytes=7"); got != all[:7] {
			t.Errorf("--limit-bytes=7 printed %q, want %q", got, all[:7])
		}
		if got := logs("--limit-bytes=1000000"); !strings.HasPrefix(got, all) {
			t.Errorf("--limit-bytes=1000000 printed %q, which does not begin with %q", got, all)
		}
	})

	t.Run("all containers", func(t *testing.T) {
		got := u.run(t, "logs", "steady", "--all-containers", "--prefix", "--tail=1")
		if !strings.Contains(got, "[pod/steady/one]") || !strings.Contains(got, "[pod/steady/two]") {
			t.Errorf("of both containers: %q", got)
		}
	})

	t.Run("errors", func(t *testing.T) {
		createPod(t, u.namespace, refused, n.podSpec(corev1.Container{Name: "c", Image: "test"}), nil)
		eventually(t, "the node says why a pod that its provider does not hold has no log", func() (bool, string) {
			_, stderr, code := u.result(t, nil, "logs", refused)
			return code != 0 && strings.Contains(stderr, `container "c" in pod "refused" is waiting to start: ContainerCreating`), stderr
		})
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"logs", refused, "--previous"}, `previous terminated container "c" in pod "refused" not found`},
			{[]string{"logs", "nowhere"}, `pods "nowhere" not found`},
			{[]string{"logs", "steady", "-c", "three"}, "container three is not valid for pod steady"},
			{[]string{"logs", "steady", "-c", "one", "--previous"}, `previous terminated container "one" in pod "steady" not found`},
		} {
			_, stderr, code := u.result(t, nil, c.args...)
			if code == 0 || !strings.Contains(stderr, c.want) {
				t.Errorf("kubectl %v ended with %d and %q, want %q", c.args, code, stderr, c.want)
			}
		}
	})

	t.Run("previous", func(t *testing.T) { testPreviousLogs(t, u) })
	t.Run("follow", func(t *testing.T) { testFollow(t, u, n) })
}

// testPreviousLogs waits until the container has been started again. Then it
// has two logs, and the previous one is of the run that ended first.
func testPreviousLogs(t *testing.T, u user) {
	eventually(t, "there is a log of the container before, with its end", func() (bool, string) {
		previous, stderr, code := u.result(t, nil, "logs", "again", "--previous", "--timestamps")
		if code != 0 {
			return false, stderr
		}
		current, old := stampedLines(t, u.run(t, "logs", "again", "--timestamps")), stampedLines(t, previous)
		before := len(current) > 0 && len(old) > 0 && old[len(old)-1].at.Before(current[0].at)
		return before && strings.Contains(previous, "exited"), fmt.Sprintf("previous %v, current %v", old, current)
	})
}

func testFollow(t *testing.T, u user, n *testNode) {
	runPod(t, u.namespace, "followed", n.podSpec(corev1.Container{Name: "c", Image: "test"}), nil)
	before := u.run(t, "logs", "followed")
	whole := u.start(t, "logs", "-f", "followed")
	fresh := u.start(t, "logs", "-f", "--tail=0", "followed")
	killed := u.start(t, "logs", "-f", "followed")
	for _, b := range []*background{whole, killed} {
		eventually(t, "the lines that are there are printed", func() (bool, string) {
			return strings.HasPrefix(b.out.String(), before), b.out.String()
		})
	}
	eventually(t, "the third has begun, too", func() (bool, string) {
		followed := n.provider.followed.Load()
		return followed == 3, fmt.Sprintf("%d have", followed)
	})
	select {
	case <-whole.ended:
		t.Errorf("kubectl logs -f has ended while the container runs: %s", whole.out)
	default:
	}
	killed.kill() // a client that goes leaves nothing behind, which the node's end shows

	u.run(t, "delete", "pod", "followed")
	for _, b := range []*background{whole, fresh} {
		if code := b.wait(t); code != 0 {
			t.Errorf("at the end of the container kubectl logs -f ended with %d: %s", code, b.out)
		}
		if !strings.HasSuffix(b.out.String(), "exited with code 0\n") {
			t.Errorf("kubectl logs -f did not print the last line, but %q", b.out)
		}
	}
	for line := range strings.Lines(before) {
		if strings.Contains(fresh.out.String(), line) {
			t.Errorf("--tail=0 printed what was before: %q", fresh.out)
		}
	}
}

// stampedLine is a line of a log with its time.
type stampedLine struct {
	at   time.Time
	text string
}

// stampedLines reads what --timestamps printed. The times do not decrease.
func stampedLines(t *testing.T, log string) []stampedLine {
	t.Helper()
	var lines []stampedLine
	for line := range strings.Lines(log) {
		stamp, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			t.Fatalf("%q has no timestamp: %v", line, err)
		}
		lines = append(lines, stampedLine{at, text})
	}
	if !slices.IsSortedFunc(lines, func(a, b stampedLine) int { return a.at.Compare(b.at) }) {
		t.Errorf("the lines are not in order: %v", lines)
	}
	return lines
}
