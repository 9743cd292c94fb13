package procfs

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	p, err := parse([]byte("42 (a) b (c)) S 7 42 41 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 12345 1000 5 18446744073709551615 1 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Process{PID: 42, Parent: 7, Group: 42, Session: 41, State: 'S', Start: 12345, CPU: 3e8, Waited: 7e8, RSS: 5 * uint64(os.Getpagesize())}
	if p != want {
		t.Errorf("got %+v", p)
	}
	for _, bad := range []string{"", "42 (a", "42 (a) S 7", "x (a) S 7 42 41 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 12345 1000 5 1"} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is a process", bad)
		}
	}
}

func TestBelow(t *testing.T) {
	all := []Process{{PID: 1}, {PID: 2, Parent: 1}, {PID: 3, Parent: 2}, {PID: 4, Parent: 3}, {PID: 5, Parent: 1}}
	got := Below(all, func(p Process) bool { return p.PID == 2 })
	if len(got) != 2 || got[0].PID != 3 || got[1].PID != 4 {
		t.Errorf("%v", got)
	}
}

// A process is killed only while it is the one that is meant.
func TestKill(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"A=b"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Read(cmd.Process.Pid)
	if err != nil || p.Parent != os.Getpid() || !Alive(p.PID, p.Start) || Alive(p.PID, p.Start+1) {
		t.Errorf("%+v, %v", p, err)
	}
	if err := Kill(p.PID, p.Start+1, unix.SIGKILL); err != nil || !Alive(p.PID, p.Start) {
		t.Errorf("another process was killed: %v", err)
	}
	if err := Kill(p.PID, p.Start, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := Kill(p.PID, p.Start, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

// A process that cannot be read for lack of files is not taken for one that has
// ended.
func TestAllWithoutFiles(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	// One is left for the directory.
	_ = files[0].Close()
	if all, err := All(); !errors.Is(err, unix.EMFILE) {
		t.Errorf("%d processes, %v", len(all), err)
	}
}
