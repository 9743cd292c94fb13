package image

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/periodic"
)

// The delays after failed pulls of an image for a pod.
const (
	baseDelay = 10 * time.Second
	maxDelay  = 300 * time.Second
	// forgetAfter is how long after a delay a failure still counts.
	forgetAfter = 2 * maxDelay
)

// backOff delays the pulls of an image for a pod after failures: by 10 seconds,
// doubling up to 300.
type backOff struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]failure // by image
}

// failure is a pull that failed.
type failure struct {
	delay time.Duration
	until time.Time
	text  string
}

// get returns the last failure, if it still matters.
func (b *backOff) get(pod types.UID, image string, now time.Time) (failure, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.pods[pod][image]
	return f, ok && now.Before(f.until.Add(forgetAfter))
}

// add counts a failure and returns it with its delay.
func (b *backOff) add(pod types.UID, image, text string, now time.Time) failure {
	last, counts := b.get(pod, image, now)
	if !counts {
		last.delay = 0
	}
	next := failure{delay: periodic.Doubled(last.delay, baseDelay, maxDelay), text: text}
	next.until = now.Add(next.delay)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods == nil {
		b.pods = map[types.UID]map[string]failure{}
	}
	if b.pods[pod] == nil {
		b.pods[pod] = map[string]failure{}
	}
	b.pods[pod][image] = next
	return next
}

// clear forgets the failures of an image after a success.
func (b *backOff) clear(pod types.UID, image string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.pods[pod], image); len(b.pods[pod]) == 0 {
		delete(b.pods, pod)
	}
}

func (b *backOff) forget(pod types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pods, pod)
}
