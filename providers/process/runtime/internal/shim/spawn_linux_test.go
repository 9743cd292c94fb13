package shim

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
