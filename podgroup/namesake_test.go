package podgroup_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// running returns the units of which something may run, also those that the service does not show.
func (a *agent) running() (running []string) {
	for i := range 10 {
		if u, err := a.world.Unit(fmt.Sprintf("unit-%06d", i+1)); err == nil && !u.Over() {
			running = append(running, u.ID)
		}
	}
	return running
}

// A pod that is deleted while the service shows nothing for half a minute has not ended: another one of its
// name, which comes once it has left the API, would run beside it.
func TestDeletionWhileTheServiceShowsNothing(t *testing.T) {
	for _, test := range []struct{ lost, restart, away bool }{{}, {restart: true}, {lost: true}, {restart: true, away: true}, {lost: true, restart: true, away: true}} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			withAgents(t, func(t *testing.T, a *agent) {
				a.world = grouptest.New(5 * time.Second) // to start, and to stop
				a.stop()
				a.start()
				a.wait(10*time.Second, "before", "[]")
				if test.lost {
					a.world.Lose(string(podgroup.ActionCreate), 1)
					a.world.Hide(true)
					a.add(grouptest.NewPod("web-0"))
				} else {
					a.add(grouptest.NewPod("web-0"))
					a.wait(10*time.Minute, "after the creation", "[Running:1]")
					a.world.Hide(true)
					a.world.BreakStreams()
					a.wait(10*time.Second, "while the service shows nothing", "[Running:1]")
				}
				if test.restart {
					a.stop()
				}
				if test.away {
					a.remove("web-0")
				}
				if test.restart {
					a.start()
				}
				if !test.away {
					a.remove("web-0")
				}
				replaced := false
				for second := range 300 {
					a.world.Hide(second < 30)
					if !replaced && a.phases()["Terminating"] == 0 {
						next := grouptest.NewPod("web-0")
						next.UID += "-2"
						a.add(next)
						replaced = true
					}
					if running := a.running(); len(running) > 1 {
						t.Fatalf("two pods of a name run: %v", running)
					}
					time.Sleep(time.Second)
				}
				a.wait(time.Minute, "at the end", "[Running:1]")
				if running := a.running(); len(running) != 1 {
					t.Errorf("at the end %v run", running)
				}
			})
		})
	}
}

// The unit of a creation that was not answered is ended soon after the service shows it, and not only once
// it is too late for it to show up.
func TestDeletionOfAUnitThatIsShownLate(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		a.wait(10*time.Second, "before", "[]")
		a.world.Lose(string(podgroup.ActionCreate), 1)
		a.world.Hide(true)
		a.add(grouptest.NewPod("web-0"))
		a.remove("web-0")
		time.Sleep(3 * time.Second)
		a.world.Hide(false)
		a.world.BreakStreams()
		for range 30 {
			time.Sleep(time.Second)
			if len(a.running()) == 0 {
				return
			}
		}
		t.Errorf("30 s after the service has shown them %v run", a.running())
	})
}
