package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// creating creates pods at the same time, as many workers do, until stop.
type creating struct {
	pods    []*corev1.Pod
	waiting atomic.Int32 // creations that hold no worker
	results []error
	stop    func() // returns when all have ended
}

func (w *world) createMany(n int) *creating {
	c := &creating{results: make([]error, n)}
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for i := range n {
		pod := w.pod(fmt.Sprintf("p%d", i))
		c.pods = append(c.pods, pod)
		all.Go(func() {
			c.results[i] = w.provider.CreatePod(providercalls.WithRelease(ctx, func() { c.waiting.Add(1) }), pod)
		})
	}
	c.stop = func() { cancel(); all.Wait() }
	w.t.Cleanup(c.stop)
	return c
}

// Machines boot at the same time: a pod whose machine does holds no worker, the driver is asked for
// a few at a time, and one list serves all. Deletions need not wait for the end of a boot.
func TestManyBootAtTheSameTime(t *testing.T) {
	const pods = 60
	w := newWorld(t)
	w.lab.silent, w.lab.hold = true, make(chan struct{})
	w.start()
	c := w.createMany(pods)
	w.eventually("all wait", func() error {
		w.lab.mu.Lock()
		defer w.lab.mu.Unlock()
		if n := c.waiting.Load(); n != pods || w.lab.making != creations {
			return fmt.Errorf("%d creations wait, %d machines are being made", n, w.lab.making)
		}
		return nil
	})
	close(w.lab.hold)
	w.eventually("all machines are made", func() error {
		if n := len(w.lab.all()); n != pods {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	var lists int
	w.lab.set(func() { lists = w.lab.lists })
	w.never("each pod lists machines", func() bool {
		w.lab.mu.Lock()
		defer w.lab.mu.Unlock()
		return w.lab.lists-lists > pods/2
	})
	c.stop()
	for i, err := range c.results {
		if err == nil || strings.Contains(err.Error(), "cannot be made") {
			t.Errorf("creation %d ends with %v", i, err)
		}
	}
	var most int
	w.lab.set(func() { most = w.lab.most })
	if most > creations || w.lab.made() != pods {
		t.Errorf("%d machines were made, %d at the same time", w.lab.made(), most)
	}
}

// No machine is made for a pod that is deleted before it is its turn, while the driver hangs with
// others.
func TestPodThatIsDeletedBeforeItsTurn(t *testing.T) {
	w := newWorld(t)
	w.lab.silent, w.lab.hold = true, make(chan struct{})
	w.start()
	c := w.createMany(creations + 5)
	w.eventually("the driver is busy", func() error {
		w.lab.mu.Lock()
		defer w.lab.mu.Unlock()
		if int(c.waiting.Load()) != len(c.pods) || w.lab.making != creations {
			return errors.New("it is not")
		}
		return nil
	})
	c.stop()
	for _, pod := range c.pods {
		w.cluster.RemovePod(pod)
	}
	close(w.lab.hold)
	w.eventually("those that were made are ended", func() error {
		if n := len(w.lab.all()); w.lab.made() < creations || n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	w.never("a machine was made for a pod that is gone", func() bool { return w.lab.made() > creations })
}

// slowAgent answers to a creation only when it is released.
type slowAgent struct {
	nodeutil.Provider
	begun, release chan struct{}
}

func (slowAgent) GetPod(context.Context, string, string) (*corev1.Pod, error) { return nil, nil }

func (a slowAgent) CreatePod(ctx context.Context, _ *corev1.Pod) error {
	close(a.begun)
	<-a.release
	return ctx.Err()
}

// A pod that is deleted while it is being sent is known to be in its machine, and so ends in its
// grace period.
func TestDeletionWhileAPodIsSent(t *testing.T) {
	a := slowAgent{begun: make(chan struct{}), release: make(chan struct{})}
	b := &backend{ctx: t.Context(), records: records{t.TempDir()}}
	l := &link{b: b, m: &member{record: &record{Name: "a-1"}}, ready: make(chan struct{}), provider: a}
	close(l.ready)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- l.give(ctx, &corev1.Pod{}) }()
	<-a.begun
	cancel()
	close(a.release)
	if err := <-result; err != nil {
		t.Errorf("the machine has the pod, and it is not known: %v", err)
	}
}

// The time in which a driver makes no machines, or takes to make one, is none that the machine takes
// to start.
func TestDriverThatFailsForLong(t *testing.T) {
	w := newWorld(t)
	w.cfg.BootTimeout = metav1.Duration{Duration: 2 * time.Second}
	w.lab.failing = true
	w.start()
	pod := w.pod("a")
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(50 * time.Millisecond) {
		if err := w.provider.CreatePod(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "out of order") {
			t.Fatalf("the pod waits for something else than the driver: %v", err)
		}
	}
	w.lab.set(func() { w.lab.failing, w.lab.lost, w.lab.silent = false, 1, true })
	_ = w.provider.CreatePod(t.Context(), pod) // makes it, and the answer is lost
	m := w.only()
	w.lab.set(func() { w.lab.boot(m) })
	w.run("a")
	if w.only() != m || w.lab.made() != 1 {
		t.Errorf("%d machines were made", w.lab.made())
	}
}
