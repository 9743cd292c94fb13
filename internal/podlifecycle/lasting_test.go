package podlifecycle

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// A provider may go on with the context of a call after it has returned, until the controller ends, as interLink's does:
// it asks its server to create and to delete pods in goroutines.
func TestContextsOfCallsOutlastThem(t *testing.T) {
	for name, calls := range map[string]struct {
		script func(*nodetest.Script, func(context.Context, *corev1.Pod) error)
		then   func(*rig)
	}{
		"create": {func(s *nodetest.Script, on func(context.Context, *corev1.Pod) error) { s.OnCreate = on }, func(*rig) {}},
		"update": {func(s *nodetest.Script, on func(context.Context, *corev1.Pod) error) { s.OnUpdate = on }, func(r *rig) {
			r.api.ChangePod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })
		}},
		"delete": {func(s *nodetest.Script, on func(context.Context, *corev1.Pod) error) { s.OnDelete = on }, func(r *rig) { r.api.DeletePod("web") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				var mu sync.Mutex
				var goingOn, over []error
				r.provider.Script(func(s *nodetest.Script) {
					calls.script(s, func(ctx context.Context, _ *corev1.Pod) error {
						go func() { // ends with ctx
							time.Sleep(time.Hour)
							request, cancel := context.WithTimeout(ctx, 2*time.Hour)
							defer cancel()
							mu.Lock()
							goingOn = append(goingOn, request.Err())
							mu.Unlock()
							<-request.Done()
							mu.Lock()
							over = append(over, request.Err())
							mu.Unlock()
						}()
						return nil
					})
				})
				r.api.AddPod(aPod("web"))
				pass(time.Second)
				calls.then(r)
				pass(2 * time.Hour)
				r.end()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(goingOn, []error{nil}) {
					t.Errorf("an hour after the call its context had %v, want one that has not ended", goingOn)
				}
				if !slices.Equal(over, []error{context.Canceled}) {
					t.Errorf("at the end of the controller the context had %v", over)
				}
			})
		})
	}
}

// listing is a provider whose first GetPods begins what reports statuses from then on.
type listing struct {
	nodetest.Notifying
	first sync.Once
	loop  func(context.Context)
}

func (l *listing) GetPods(ctx context.Context) ([]*corev1.Pod, error) {
	l.first.Do(func() { go l.loop(ctx) })
	return l.Notifying.GetPods(ctx)
}

func TestFirstListMayBeginALoop(t *testing.T) {
	for name, keeps := range map[string]func(context.Context) (ended func() bool, done <-chan struct{}){
		"keeps the context": func(ctx context.Context) (func() bool, <-chan struct{}) {
			return func() bool { return ctx.Err() != nil }, ctx.Done()
		},
		"keeps its channel": func(ctx context.Context) (func() bool, <-chan struct{}) {
			done := ctx.Done()
			return func() bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			}, done
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				over := false
				r.handler = &listing{Notifying: r.provider.Notifying(), loop: func(ctx context.Context) {
					ended, done := keeps(ctx)
					for !ended() {
						select {
						case <-done:
						case <-time.After(5 * time.Second):
							r.provider.SetPhase("web", corev1.PodSucceeded)
						}
					}
					over = true
				}}
				r.start()
				r.api.AddPod(aPod("web"))
				pass(time.Hour)
				runtime.GC()
				runtime.GC()
				want(t, "phase", r.phase("web"), corev1.PodSucceeded)
				want(t, "the loop has ended", over, false)
				r.end()
				synctest.Wait()
				want(t, "the loop has ended with the controller", over, true)
			})
		})
	}
}
