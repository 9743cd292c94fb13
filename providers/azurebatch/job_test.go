package azurebatch

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch/batchtest"
)

// Nothing is sent for a pod while the pool cannot be read.
func TestPoolThatCannotBeRead(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		if _, err := r.GetPods(t.Context()); err != nil { // as an agent does when it starts
			t.Fatal(err)
		}
		r.world.Refuse(batchtest.ActionPool, 1, &grouptest.Refusal{Status: http.StatusInternalServerError, Code: "InternalError"})
		pod := job("early")
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) || r.world.Calls(batchtest.ActionAdd) != 0 {
			t.Errorf("after %d creations the error is %v", r.world.Calls(batchtest.ActionAdd), err)
		}
		grouptest.CheckLeaves(t, r.cluster, r, pod)
	})
}

// A task that its caller gives up is not added unless it was in a call already.
func TestTaskThatIsGivenUp(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		if _, err := r.GetPods(t.Context()); err != nil { // as an agent does when it starts
			t.Fatal(err)
		}
		first, unsent, sent := job("first"), job("unsent"), job("sent")
		for _, pod := range []*corev1.Pod{first, unsent, sent} {
			r.cluster.SetPod(pod)
		}
		giveUp := func(pod *corev1.Pod, after time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if err := r.CreatePod(ctx, pod); !errdefs.IsUnavailable(err) {
				t.Errorf("pod %s is not given up: %v", pod.Name, err)
			}
		}
		giveUp(unsent, gatherTime/2)
		grouptest.CheckLeaves(t, r.cluster, r, unsent)
		r.world.Delay(batchtest.ActionAdd, 1, 5*time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.CreatePod(t.Context(), first); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it makes the call for both
		giveUp(sent, time.Second)
		sent = sent.DeepCopy()
		sent.DeletionTimestamp = new(metav1.Now())
		r.cluster.SetPod(sent)
		if _, err := r.GetPodByUID(t.Context(), sent.Namespace, sent.Name, sent.UID); err == nil || errdefs.IsNotFound(err) {
			t.Errorf("its task is being added, and the error is %v", err)
		}
		wg.Wait()
		if n := len(r.world.Units(nil)); n != 2 {
			t.Errorf("there are %d tasks", n)
		}
	})
}

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
