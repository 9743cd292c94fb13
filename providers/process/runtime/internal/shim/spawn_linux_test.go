package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/cgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
)

func TestMain(m *testing.M) {
	if os.Args[0] == Name {
		unix.Exit(Main(os.Args))
	}
	os.Exit(m.Run())
}

// The holder of the lock of a container's directory may rely on there being nothing on
// its way to a command: an init holds it as long as it is one, even when its shim
// is gone.
func TestInitHoldsTheLock(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	s := onlySpawner()
	for name, run := range map[string]bool{"that becomes its command": true, "that is given up": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if s.lock, err = Lock(dir); err != nil {
				t.Fatal(err)
			}
			command := Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Dir: "/"}
			l, err := s.start(initConfig{Command: command}, []*os.File{null, null, null}, process(false, 0), nil)
			_ = s.lock.Close()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = s.signal(l.child, unix.SIGKILL)
				<-l.done
			}()
			if free, err := Lock(dir); !errors.Is(err, ErrRuns) {
				_ = free.Close()
				t.Errorf("an init waits, and its lock can be taken: %v", err)
			}
			if err := l.release(run); (err == nil) != run {
				t.Error(err)
			}
			waitForLock(t, dir)
		})
	}
}

// In the PID namespace of another container orphans are no children of the shim: they are
// found by the control group, which of v1 cannot kill, and by the marker.
func TestOrphansOfAnotherNamespaceAreKilled(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for _, by := range []string{"group", "marker"} {
		dir := t.TempDir()
		marker := MarkerEnv + "=" + filepath.Base(dir) + by + strconv.Itoa(os.Getpid())
		s := onlySpawner()
		if s.lock, err = Lock(dir); err != nil {
			t.Fatal(err)
		}
		command := Command{Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 1000 & echo $! > pid; exit"}, Dir: dir, Env: []string{marker, "PATH=" + os.Getenv("PATH")}}
		l, err := s.start(initConfig{Command: command}, []*os.File{null, null, null}, process(false, 0), nil)
		if err == nil {
			err = l.release(true)
		}
		_ = s.lock.Close()
		if err != nil {
			t.Fatal(err)
		}
		<-l.done
		data, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		orphan, err := procfs.Read(pid)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = procfs.Kill(pid, orphan.Start, unix.SIGKILL) }()
		killer := &spawner{marker: marker}
		if by == "group" {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			killer = &spawner{marker: "another", group: cgroup.Group{"memory": dir}}
		}
		killer.killAll()
		if procfs.Alive(pid, orphan.Start) {
			t.Errorf("the orphan that is found by its %s runs on", by)
		}
	}
}

// onlySpawner is the one spawner of this process: it waits for all that ends.
var onlySpawner = sync.OnceValue(func() *spawner { return newSpawner(nil, false, nil) })

// waitForLock waits until a lock is free: the kernel closes files one after the
// other.
func waitForLock(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		free, err := Lock(dir)
		if err == nil {
			_ = free.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the init is gone, and its lock is not free: %v", err)
		}
	}
}
