package gauge

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestCPU(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sum, deadline := 0, time.Now().Add(time.Minute); ; sum++ { // busy until the kernel has counted some of it
		now, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now > before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute of work no time has passed (%d)", sum)
		}
	}
}

// What a program did that has been waited for counts as well.
func TestCPUOfChildren(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	after, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	used := child.ProcessState.UserTime() + child.ProcessState.SystemTime()
	if after-before < used-2*tick {
		t.Errorf("%v more, of a child that has used %v", after-before, used)
	}
}

func TestRSS(t *testing.T) {
	m, err := RSS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if m.Now < 1<<20 || m.Peak < m.Now || m.Anonymous == 0 || m.Anonymous >= m.Now {
		t.Errorf("got %+v", m)
	}
}

func TestAProcessThatIsGone(t *testing.T) {
	const none = 1 << 30
	if _, err := CPU(none); err == nil {
		t.Error("CPU of no process")
	}
	if _, err := RSS(none); err == nil {
		t.Error("RSS of no process")
	}
}

func TestSince(t *testing.T) {
	get, patch := Request{"GET", "pods"}, Request{"PATCH", "pods/status"}
	more := Requests{get: 3, patch: 5}.Since(Requests{get: 3, patch: 1})
	if len(more) != 1 || more[patch] != 4 {
		t.Errorf("got %v", more)
	}
}
