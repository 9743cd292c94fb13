package podlifecycle

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodetest"
)

// scriptedClaim allows what a test says.
type scriptedClaim struct{ begin, goOn atomic.Bool }

func newScriptedClaim() *scriptedClaim {
	c := &scriptedClaim{}
	c.begin.Store(true)
	c.goOn.Store(true)
	return c
}

func (c *scriptedClaim) MayBegin() bool { return c.begin.Load() }
func (c *scriptedClaim) MayGoOn() bool  { return c.goOn.Load() }

// While the lease of the node cannot be renewed no pod is created: another process may
// have taken the node. What was begun goes on, and ends.
func TestNothingIsBegunWithoutTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		claim := newScriptedClaim()
		r.start(func(c *Config) { c.Claim = claim })
		r.api.AddPod(aPod("before"))
		pass(time.Second)
		r.provider.TakeCalls()
		r.events.recorded()
		claim.begin.Store(false)
		pod := r.api.AddPod(aPod("web"))
		pass(time.Minute)
		wantList(t, "creations", r.provider.TakeCalls("create"))
		wantList(t, "events", r.events.recorded(), "Warning NodeUnclaimed: "+unclaimedMessage)
		r.api.DeletePod("before")
		pass(time.Second)
		wantList(t, "ends", r.provider.TakeCalls("delete"), "delete before uid-1001 grace 30")
		want(t, "pod that has ended", r.api.Pod("before"), nil)
		claim.begin.Store(true)
		pass(3 * time.Second)
		wantList(t, "creations", r.provider.TakeCalls("create"), "create web "+string(pod.UID))
	})
}

// A process that stood still, stopped by a signal or with its machine, does nothing
// before it has looked at the lease: another one may have ended the pod, and made a new
// one of that name.
func TestProcessThatStoodStill(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			claim := newScriptedClaim()
			r.provider.Script(func(s *nodetest.Script) { s.Lingers = true })
			r.start(func(c *Config) { c.Claim = claim })
			r.api.AddPod(aPod("web"))
			r.api.AddPod(aPod("other"))
			pass(time.Second)
			r.api.DeletePod("web")
			pass(time.Second)
			wantList(t, "ends", r.provider.TakeCalls("delete"), "delete web uid-1001 grace 30")
			claim.begin.Store(false) // it stands still, and its timers are due then
			claim.goOn.Store(false)
			pass(16 * time.Second)
			r.api.DeletePod("other")
			pass(15 * time.Second)
			wantList(t, "ends before the lease was looked at", r.provider.TakeCalls("delete"))
			claim.goOn.Store(!lost)
			pass(3 * time.Second)
			synctest.Wait()
			if lost {
				wantList(t, "ends when the node was lost", r.provider.TakeCalls("delete"))
				return
			}
			calls := r.provider.TakeCalls("delete")
			want(t, "ends", len(calls), 2)
		})
	}
}

// Nor does it take a pod for lost, by what it asked before, or write a status.
func TestStatusesOfAProcessThatStoodStill(t *testing.T) {
	for _, back := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			claim := newScriptedClaim()
			r.handler = r.provider.Polled()
			r.start(func(c *Config) { c.Claim, c.LostPodTimeout = claim, 3*time.Second })
			r.api.AddPod(aPod("web"))
			r.api.AddPod(aPod("other"))
			pass(time.Second)
			r.events.recorded()
			r.api.Written()
			claim.begin.Store(false)
			claim.goOn.Store(false)
			lost := r.provider.Forget("web")
			r.provider.ChangePod("other", func(p *corev1.Pod) { p.Status.Message = "new" })
			pass(time.Minute)
			wantList(t, "events before the lease was looked at", r.events.recorded())
			wantList(t, "writes before the lease was looked at", r.api.Written())
			phase := corev1.PodFailed
			if back {
				r.provider.Hold(lost, corev1.PodRunning)
				phase = corev1.PodRunning
			}
			claim.begin.Store(true)
			claim.goOn.Store(true)
			pass(20 * time.Second)
			want(t, "phase", r.phase("web"), phase)
			want(t, "message", r.api.Pod("other").Status.Message, "new")
		})
	}
}
