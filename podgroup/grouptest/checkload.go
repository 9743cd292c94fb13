package grouptest

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

func throttled(r *run) {
	pod := r.pod("throttled")
	r.cluster.SetPod(pod)
	create := r.action(podgroup.ActionCreate)
	r.world.Refuse(create, 1, ErrQuota)
	err := r.p.CreatePod(r.Context(), pod)
	if delay, ok := errdefs.RetryAfter(err); !ok || delay <= 0 || errdefs.IsPermanent(err) {
		r.Fatalf("a creation that is refused for too many calls returns %v", err)
	}
	before := r.world.Calls(create)
	if err := r.p.CreatePod(r.Context(), pod); err == nil {
		r.Error("there is no silence after a refusal for too many calls")
	}
	if n := r.world.Calls(create); n != before {
		r.Errorf("%d creations were sent right after a refusal for too many calls", n-before)
	}
	time.Sleep(time.Minute)
	r.must(r.p.CreatePod(r.Context(), pod))
}

func failedList(r *run) {
	if is[podgroup.Watcher](r.backend) {
		return // its cache is current without a list
	}
	pod := r.pod("kept")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	time.Sleep(time.Minute)
	r.world.Refuse(r.action(podgroup.ActionList), 1, &Refusal{Status: 500, Code: "InternalError", Message: "something went wrong"})
	if pods, err := r.p.GetPods(r.Context()); err == nil || errdefs.IsNotFound(err) {
		r.Errorf("a list that fails has %d pods, error %v", len(pods), err)
	}
	if pods := r.pods(); len(pods) != 1 {
		r.Errorf("afterwards there are %d pods", len(pods))
	}
}

func manyPods(r *run) {
	quota := r.suite.Budget
	if quota == 0 {
		quota = 2000
	}
	r.world.SetQuota("", quota)
	var pods []*corev1.Pod
	for i := range 1000 {
		pods = append(pods, r.pod("many-"+strings.Repeat("x", 1+i/100)+"-"+string(rune('0'+i/10%10))+string(rune('0'+i%10))))
		r.cluster.SetPod(pods[i])
	}
	var wg, poll sync.WaitGroup
	done := make(chan struct{})
	poll.Go(func() { // as a controller does
		for {
			select {
			case <-time.After(5 * time.Second):
				_, _ = r.p.GetPods(r.Context()) // it may have to wait for its turn
			case <-done:
				return
			}
		}
	})
	todo := make(chan *corev1.Pod)
	for range 10 { // as many as a controller has workers
		wg.Go(func() {
			for pod := range todo {
				for !r.ensured(pod) {
					time.Sleep(time.Second)
				}
			}
		})
	}
	for _, pod := range pods {
		todo <- pod
	}
	close(todo)
	wg.Wait()
	close(done)
	poll.Wait()
	r.until("that all pods run", func() bool {
		return !slices.ContainsFunc(r.pods(), func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodRunning }) && len(r.pods()) == len(pods)
	})
	if n := r.world.Refused(); n != 0 {
		r.Errorf("%d of %d calls were refused because there were too many", n, r.world.Calls(""))
	}
	if creations := r.world.Calls(r.action(podgroup.ActionCreate)); creations != len(pods) {
		r.Errorf("%d creations of %d pods", creations, len(pods))
	}

	created := r.world.cost()
	for range 12 {
		time.Sleep(5 * time.Second)
		_, err := r.p.GetPods(r.Context())
		r.must(err)
	}
	rested := r.world.cost()
	todo = make(chan *corev1.Pod)
	for range 10 {
		wg.Go(func() {
			for pod := range todo {
				for err := r.p.DeletePod(r.Context(), pod); err != nil && !errdefs.IsNotFound(err); err = r.p.DeletePod(r.Context(), pod) {
					time.Sleep(time.Second)
				}
			}
		})
	}
	for _, pod := range pods {
		todo <- pod
	}
	close(todo)
	wg.Wait()
	r.until("that no pod runs", func() bool { // some services show for a while what has ended
		return !slices.ContainsFunc(r.pods(), func(pod *corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
		})
	})
	deleted := r.world.cost().since(rested)
	rested = rested.since(created)
	Calls{
		Create: created.calls, Minute: rested.calls, Delete: deleted.calls,
		Sent:     Bytes{created.sent, rested.sent, deleted.sent},
		Received: Bytes{created.received, rested.received, deleted.received},
	}.Compare(r.T, CallsFile)
}

// cost is what clients have asked of a service so far, or in a while.
type cost struct{ calls, sent, received int }

func (w *World) cost() cost {
	sent, received := w.Traffic()
	return cost{w.Calls(""), sent, received}
}

func (c cost) since(before cost) cost {
	return cost{c.calls - before.calls, c.sent - before.sent, c.received - before.received}
}

// Calls are how many calls of a service 1000 pods take: to create them, in a minute in which
// nothing happens, and to delete them. CallsFile has the most.
type Calls struct {
	Create, Minute, Delete int
	// Sent and Received are the bytes of these calls, with headers; none if the connections
	// do not count (see Serve).
	Sent, Received Bytes `json:",omitzero"`
}

// Bytes are those of Calls.
type Bytes struct{ Create, Minute, Delete int }

func (c *Calls) numbers() []*int {
	return []*int{&c.Create, &c.Minute, &c.Delete, &c.Sent.Create, &c.Sent.Minute, &c.Sent.Delete, &c.Received.Create, &c.Received.Minute, &c.Received.Delete}
}

// CallsFile is the file, in the directory of the package that runs the suite.
const CallsFile = "testdata/calls.json"

// CallsVariable is the environment variable that, if it is not empty, has Compare write the
// file: a test kit has no flags of its own.
const CallsVariable = "UPDATE_CALLS"

// Compare fails where there were more calls, or bytes, than a file says, by half: how many
// lists are made is a matter of what runs first and for how long.
func (c Calls) Compare(t *testing.T, file string) {
	t.Helper()
	var most Calls
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &most)
	}
	made, known := c.numbers(), most.numbers()
	if os.Getenv(CallsVariable) != "" {
		for i, n := range made {
			*n = max(*n, *known[i]) // other suites of the package may have made more
		}
		if text, err = json.Marshal(c); err == nil {
			err = os.WriteFile(file, append(text, '\n'), 0o644) // #nosec G306 -- it is part of the source
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	more := false
	for i, n := range made {
		margin := 10
		if i >= 3 {
			margin = 10_000 // of bytes
		}
		more = more || *n > *known[i]+*known[i]/2+margin && (i < 3 || *known[i] > 0)
	}
	if err != nil || more {
		t.Errorf("1000 pods took other calls than %s says (%v), which docs/providers.md shows; with %s=1 this test writes it: it was %+v", file, err, CallsVariable, c)
	}
}

// ensured creates a pod unless the provider has it, and reports whether it has it then.
func (r *run) ensured(pod *corev1.Pod) bool {
	_, err := r.p.(node.PodUIDLifecycleHandler).GetPodByUID(r.Context(), pod.Namespace, pod.Name, pod.UID)
	if errdefs.IsNotFound(err) {
		err = r.p.CreatePod(r.Context(), pod)
	}
	return err == nil
}

func quiet(r *run) {
	if is[podgroup.Watcher](r.backend) {
		return
	}
	for _, name := range []string{"a", "b", "c"} {
		r.create(r.pod(name))
	}
	time.Sleep(5 * time.Minute)
	r.pods()
	before := r.world.Calls("")
	for range 10 {
		time.Sleep(5 * time.Second)
		r.pods()
		for _, pod := range r.pods() {
			r.status(pod)
		}
	}
	if n := r.world.Calls("") - before; n > 10*max(1, r.suite.CallsPerList) {
		r.Errorf("ten rounds took %d calls", n)
	}
}
