package leader

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// guardedLock reports at once that a lease is lost: it has another holder, or was not
// renewed for the deadline. In both cases client-go goes on trying for another
// deadline, in which two processes would lead.
type guardedLock struct {
	resourcelock.Interface
	deadline time.Duration
	lost     context.Context
	lose     context.CancelFunc

	mu    sync.Mutex
	fence *time.Timer // nil until the lease is held
}

func newGuardedLock(lock resourcelock.Interface, deadline time.Duration) *guardedLock {
	l := &guardedLock{Interface: lock, deadline: deadline}
	l.lost, l.lose = context.WithCancel(context.Background())
	return l
}

// Get implements resourcelock.Interface.
func (l *guardedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() && l.held() {
		l.lose()
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *guardedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.written(time.Now(), l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (l *guardedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.written(time.Now(), l.Interface.Update(ctx, record))
}

// written records the result of a write that began at begin: it moves the fence.
func (l *guardedLock) written(begin time.Time, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	left := time.Until(begin.Add(l.deadline))
	if l.fence == nil {
		l.fence = time.AfterFunc(left, l.lose)
	} else {
		l.fence.Reset(left)
	}
	return nil
}

// held reports whether the lease was ever held.
func (l *guardedLock) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fence != nil
}

// release lets another process lead at once. client-go would do so as soon as a renewal
// has failed, before the function has returned.
func (l *guardedLock) release(ctx context.Context) {
	if !l.held() {
		return
	}
	l.fence.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.deadline)
	defer cancel()
	record, _, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity == l.Identity() {
		now := metav1.Now()
		err = l.Interface.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("Cannot release the leader's lease; it expires")
	}
}
