package azurebatch

import (
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch/batchtest"
)

// A job that a person has terminated takes no tasks any more: the node is not ready, until the job
// was deleted, and created again. One that is disabled takes tasks, which wait.
func TestJobThatWasTerminated(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		r.create(t, job("before"))
		for _, state := range []string{"disabled", "terminating", "completed"} {
			r.fake.SetJobs(state)
			pod := job(state)
			r.cluster.SetPod(pod)
			if err := r.CreatePod(t.Context(), pod); errdefs.IsPermanent(err) || (err == nil) != (state == "disabled") {
				t.Errorf("%s: a creation gives %v", state, err)
			} else if _, later := errdefs.RetryAfter(err); err != nil && !later { // else the pod's deletion would wait for a task
				t.Errorf("%s: a creation is not refused: %v", state, err)
			}
			for range 2 {
				if err := r.Ping(t.Context()); (err == nil) != (state == "disabled") || err != nil && !strings.Contains(err.Error(), "is "+state+": delete it") {
					t.Errorf("%s: the node: %v", state, err)
				}
				time.Sleep(time.Minute)
			}
		}
		r.fake.DeleteJobs()
		for range 3 { // a job that is gone is missing in two lists before it is created
			_ = r.Ping(t.Context())
			time.Sleep(time.Minute)
		}
		before := r.world.Calls(batchtest.ActionGetJob)
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("the job was deleted: %v", err)
		}
		r.create(t, job("after"))
		if n := r.world.Calls(batchtest.ActionGetJob) - before; n != 0 {
			t.Errorf("the job was asked for %d times more", n)
		}
	})
}
