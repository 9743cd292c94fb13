package eci

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

func TestOneListingAnswersForAllPods(t *testing.T) {
	r := newRig(t, 0, func(c *Config) { c.CacheFor.Duration = time.Hour })
	const count = 45
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, r.create(t, newPod(fmt.Sprintf("pod-%02d", i))))
	}
	r.Provider = r.newProvider(t, r.cfg) // which knows none of them
	lists, pages := r.lists(), r.api.Calls("DescribeContainerGroups")
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if list, err := r.GetPods(t.Context()); err != nil || len(list) != count {
				t.Errorf("GetPods returns %d pods, and %v", len(list), err)
			}
		})
	}
	wg.Wait()
	for _, pod := range pods {
		r.status(t, pod)
	}
	lists, pages = r.lists()-lists, r.api.Calls("DescribeContainerGroups")-pages
	if lists != 1 || pages != 3 {
		t.Errorf("%d pods of which all is asked take %d lists and %d calls that describe them, want 1 and 3", count, lists, pages)
	}
}

// A listing may be older than a creation: the pod must not look lost.
func TestANewPodIsThereBeforeAListingHasIt(t *testing.T) {
	r := newRig(t, time.Hour, func(c *Config) { c.CacheFor.Duration = time.Hour })
	if _, err := r.GetPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := r.create(t, newPod("a"))
	if err := r.api.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if status := r.status(t, pod); status.Phase != corev1.PodPending {
		t.Errorf("the pod is %s", status.Phase)
	}
}

func TestGroupsOfOthersAreNotSeen(t *testing.T) {
	r := newRig(t, 0)
	for _, change := range []func(*Config){
		func(c *Config) { c.ClusterName = "elsewhere" },
	} {
		config := testConfig(r.api.URL)
		change(&config)
		other := r.newProvider(t, config)
		if err := other.CreatePod(t.Context(), newPod("theirs")); err != nil {
			t.Fatal(err)
		}
	}
	if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("there are %d pods: %v", len(pods), err)
	}
	if err := r.DeletePod(t.Context(), newPod("theirs")); !errdefs.IsNotFound(err) {
		t.Errorf("the deletion of another's pod gives %v", err)
	}
}

// sameAnswer returns the same response to all calls, and counts them.
type sameAnswer struct {
	text  string
	calls int
}

func (a *sameAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	a.calls++
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.text))}, nil
}

// A part of the pods must not count as all, nor must the API be called for ever.
func TestAListingThatDoesNotEndIsNone(t *testing.T) {
	r := newRig(t, 0)
	answer := &sameAnswer{text: `{"NextToken": "same", "ContainerGroups": []}`}
	r.backend.client.transport = answer
	if _, err := r.GetPods(t.Context()); !errdefs.IsUnavailable(err) || answer.calls != 2 {
		t.Errorf("after %d calls the error is %v", answer.calls, err)
	}
}

// While the API throttles, nothing is listed.
func TestListingsRespectThrottling(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, newPod("a"))
		before := r.api.Calls("DescribeContainerGroups")
		r.refuse("DescribeContainerGroups", 1, http.StatusTooManyRequests, "TooFast", "wait")
		for range 3 {
			_, err := r.GetPods(t.Context())
			if after, _ := errdefs.RetryAfter(err); after != 10*time.Second {
				t.Errorf("a listing that is throttled gives %v", err)
			}
			if err := r.Ping(t.Context()); err != nil {
				t.Errorf("throttled, the node is not well: %v", err)
			}
		}
		if calls := r.api.Calls("DescribeContainerGroups") - before; calls != 1 {
			t.Errorf("%d listings were asked for, want 1", calls)
		}
		time.Sleep(10 * time.Second)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("after that there are %d pods: %v", len(pods), err)
		}
	})
}

// The API lists nothing to an access key without the right to list. That pods run must
// not be forgotten then, also after a restart of the node.
func TestAnEmptyListingIsConfirmed(t *testing.T) {
	for name, change := range map[string]func(u *grouptest.Unit){
		"running": func(*grouptest.Unit) {},
		"Pending": func(u *grouptest.Unit) { // whose container has no ID yet
			u.Phase, u.Container("main").Now = podgroup.Pending, podgroup.Run{Reason: "ImagePullBackOff"}
		},
		"in CrashLoopBackOff": func(u *grouptest.Unit) {
			c := u.Container("main")
			c.Last, c.Restarts = podgroup.Run{State: podgroup.Terminated, ExitCode: 1, Started: c.Now.Started, Finished: c.Now.Started}, 1
			c.Now = podgroup.Run{Reason: "CrashLoopBackOff"}
		},
	} {
		t.Run(name, func(t *testing.T) { testEmptyListing(t, name == "running", change) })
	}
}

func testEmptyListing(t *testing.T, runs bool, change func(u *grouptest.Unit)) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	if err := r.api.Change("a", change); err != nil {
		t.Fatal(err)
	}
	pod.Status = *r.status(t, pod)
	r.home.SetPod(pod)
	r.api.Hide(true)
	for name, p := range map[string]*podgroup.Provider{"the provider": r.Provider, "one after a restart": r.newProvider(t, testConfig(r.api.URL))} {
		if _, err := p.GetPodStatusByUID(t.Context(), "default", "a", pod.UID); !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "the access key has the right") {
			t.Errorf("%s: the status of a pod gives %v", name, err)
		}
		if err := p.DeletePod(t.Context(), pod); !errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) {
			t.Errorf("%s: the deletion gives %v", name, err)
		}
		if err := p.Ping(t.Context()); err == nil {
			t.Errorf("%s: the node is well", name)
		}
	}
	r.refuse("DescribeContainerLog", 1, http.StatusForbidden, "Forbidden.RAM", "no")
	if _, err := r.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
		t.Errorf("if the group cannot be asked for, the error is %v", err)
	}
	for message, code := range map[string]string{"There is no container main.": "ContainerNotFound", "The specified ContainerName does not exist.": "InvalidParameter.NotFound"} {
		if runs && code != "ContainerNotFound" {
			continue
		}
		r.refuse("DescribeContainerLog", 1, http.StatusNotFound, code, message)
		if _, err := r.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("if a container of the group is not found (%s), the error is %v", code, err)
		}
	}
	r.api.Hide(false)
	r.status(t, pod)
	if err := r.api.Remove("a"); err != nil {
		t.Fatal(err)
	}
	message := "The specified ContainerGroupId does not exist."
	if runs { // else it may be about the container
		message = "no such group"
	}
	r.refuse("DescribeContainerLog", 1, http.StatusNotFound, "InvalidParameter.NotFound", message)
	for range 2 { // by either code
		if _, err := r.GetPodStatusByUID(t.Context(), "default", "a", pod.UID); !errdefs.IsNotFound(err) {
			t.Errorf("the status of a pod whose group is gone gives %v", err)
		}
	}
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("the node is not well: %v", err)
	}
}
