package podengine

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An engine begins before its runtime is up, takes pods, and goes on with them and
// with those of before once it is.
func TestTheRuntimeComesUpLater(t *testing.T) {
	inBubble(t, func(r *rig) {
		before := makePod("a")
		before.Name = "before"
		r.create(before)
		r.wantState(before, "Running a=ready")
		r.end()
		r.runtime.did()
		r.events.drain()
		r.runtime.intercept(func(context.Context, string) error { return status.Error(codes.Unavailable, "no such socket") })
		r.begin()
		if err := r.Ping(r.ctx); err == nil {
			t.Error("the node is well without its runtime")
		}
		pod, ends := makePod("b"), makePod("c")
		pod.Name, ends.Name = "new", "ends"
		r.create(pod)
		r.create(ends)
		r.delete(ends, 5)
		r.after(5 * time.Minute)
		r.wantState(before, "Running a=ready")
		r.runtime.did()
		r.runtime.intercept(nil)
		r.after(11 * time.Second)
		if err := r.Ping(r.ctx); err != nil {
			t.Error(err)
		}
		r.wantState(before, "Running a=ready")
		r.wantState(pod, "Running b=ready")
		if id := r.status(pod).ContainerStatuses[0].ContainerID; id != "fake://"+r.runtime.newest("b").Id {
			t.Errorf("the container's ID is %q", id)
		}
		if r.worker(ends.UID) != nil {
			t.Error("the pod that was deleted meanwhile is still there")
		}
		r.wantCalls("RunPodSandbox new", "CreateContainer b", "StartContainer b")
	})
}
