package runtime_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cri-client/pkg/logs"
)

// A log is what the CRI wants it to be, and reads as it was written.
func TestLogFormat(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh(`echo one; echo two >&2; echo; head -c 40000 /dev/zero | tr '\0' x; echo; printf end`))
		n.ended(id)
		out, errOut := n.logs(id)
		if want := "one\n\n" + strings.Repeat("x", 40000) + "\nend"; out != want || errOut != "two\n" {
			t.Errorf("stdout %.40q… (%d bytes), stderr %q", out, len(out), errOut)
		}
		data, err := os.ReadFile(n.status(id).LogPath)
		must(t, err)
		format := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d) (stdout|stderr) [FP] `)
		scanner := bufio.NewScanner(bytes.NewReader(data))
		for scanner.Scan() {
			if !format.MatchString(scanner.Text()) || len(scanner.Text()) > 17000 {
				t.Errorf("line %.60q… of %d bytes", scanner.Text(), len(scanner.Text()))
			}
		}
		if parts := bytes.Count(data, []byte(" stdout P ")); parts != 3 {
			t.Errorf("%d parts", parts)
		}
	})
}

// Following a log ends with the container.
func TestFollowLog(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("for i in 1 2 3; do echo $i; sleep 0.1; done"))
		eventually(t, "the log", func() bool { _, err := os.Stat(n.status(id).LogPath); return err == nil })
		var out bytes.Buffer
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		must(t, logs.ReadLogs(short, n.status(id).LogPath, id, &logs.LogOptions{Follow: true}, n, &out, &out))
		if out.String() != "1\n2\n3\n" {
			t.Errorf("%q", out.String())
		}
	})
}

// After a rotation the output goes to a new file.
func TestReopenLog(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("trap 'echo after' USR1; echo before; while :; do sleep 0.02; done"))
		n.waitLog(id, "before")
		path := n.status(id).LogPath
		must(t, os.Rename(path, path+".1"))
		must(t, n.ReopenContainerLog(ctx, id))
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		if _, _, err := n.ExecSync(ctx, id, []string{"sh", "-c", "kill -USR1 " + n.firstPID(id)}, 0); err != nil {
			t.Fatal(err)
		}
		if out := n.waitLog(id, "after"); out != "after\n" {
			t.Errorf("the new log: %q", out)
		}
		old, err := os.ReadFile(path + ".1")
		must(t, err)
		if !bytes.Contains(old, []byte("before")) || bytes.Contains(old, []byte("after")) {
			t.Errorf("the old log: %q", old)
		}
		must(t, n.StopContainer(ctx, id, 0))
		if err := n.ReopenContainerLog(ctx, id); err == nil {
			t.Error("the log of a container that has ended was opened again")
		}
	})
}
