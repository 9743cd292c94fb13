package eci

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// expectPods lists the pods, and counts the calls of both lists.
func (r *rig) expectPods(t *testing.T, when string, pods, statuses, groups int) {
	t.Helper()
	time.Sleep(time.Second)
	before, described := r.lists(), r.api.Calls("DescribeContainerGroups")
	found, err := r.GetPods(t.Context())
	if err != nil || len(found) != pods {
		t.Fatalf("%s there are %d pods, want %d: %v", when, len(found), pods, err)
	}
	before, described = r.lists()-before, r.api.Calls("DescribeContainerGroups")-described
	if before != statuses || described != groups {
		t.Errorf("%s %d pages of statuses and %d of groups were read, want %d and %d", when, before, described, statuses, groups)
	}
}

// Groups are described only where something has changed: before they run, in case of an event.
func TestGroupsAreDescribedWhenTheyHaveChanged(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		for i := range 45 {
			r.create(t, newPod(fmt.Sprintf("pod-%02d", i)))
		}
		r.restart(t)
		r.expectPods(t, "at the beginning", 45, 1, 3)
		r.expectPods(t, "without a change", 45, 1, 0)
		if err := r.api.Exit("pod-07", "main", 1); err != nil {
			t.Fatal(err)
		}
		r.expectPods(t, "after a restart of a container", 45, 1, 1)
		if err := r.api.Remove("pod-08"); err != nil {
			t.Fatal(err)
		}
		r.expectPods(t, "after one has gone", 44, 1, 0)
		r.create(t, newPod("another"))
		r.expectPods(t, "after another was created", 45, 1, 1)
		time.Sleep(describedMaxAge)
		r.expectPods(t, "after some minutes", 45, 1, 3)
	})
}

// An access key of an earlier version has no right to DescribeContainerGroupStatus, and some regions do not have it:
// the other list has all.
func TestListsWithoutStatuses(t *testing.T) {
	for name, refuse := range map[string]func(r *rig){
		"not offered": func(r *rig) {
			r.refuse("DescribeContainerGroupStatus", 1, http.StatusNotFound, "InvalidAction.NotFound", "no")
		},
		"no right": func(r *rig) { r.refuse("DescribeContainerGroupStatus", 1, http.StatusForbidden, "Forbidden.RAM", "no") },
		"empty":    func(r *rig) { r.api.HideStatuses(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, r *rig) {
				for i := range 25 {
					r.create(t, newPod(fmt.Sprintf("pod-%02d", i)))
				}
				r.restart(t)
				refuse(r)
				r.expectPods(t, "at first", 25, 1, 2)
				r.expectPods(t, "then", 25, 0, 2)
				r.api.HideStatuses(false)
				time.Sleep(withoutStatuses)
				r.expectPods(t, "after ten minutes", 25, 1, 2)
				r.expectPods(t, "and then", 25, 1, 0)
			})
		})
	}
}

// If groups are listed and cannot be described, none of them is gone.
func TestGroupsThatCannotBeDescribed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		pod := r.create(t, newPod("a"))
		pod.Status = *r.status(t, pod)
		r.home.SetPod(pod)
		r.restart(t)
		r.api.HideGroups(true)
		for range 3 {
			if pods, err := r.GetPods(t.Context()); err == nil {
				t.Errorf("there are %d pods", len(pods))
			}
			time.Sleep(time.Minute)
		}
		r.api.HideGroups(false)
		r.expectPods(t, "afterwards", 1, 0, 1)
	})
}

// Where all statuses take several pages, those that have changed are read, and all each
// minute, and while a group stops.
func TestStatusesThatHaveChanged(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		const count = 250
		var pods []*corev1.Pod
		for i := range count {
			pods = append(pods, r.create(t, newPod(fmt.Sprintf("pod-%03d", i))))
		}
		time.Sleep(time.Minute)
		r.restart(t)
		r.expectPods(t, "at the beginning", count, 2, 13)
		r.expectPods(t, "without a change", count, 1, 0)
		time.Sleep(40 * time.Second)
		if err := r.api.Exit("pod-007", "main", 1); err != nil {
			t.Fatal(err)
		}
		r.expectPods(t, "after a restart of a container", count, 1, 1)
		if n := r.status(t, pods[7]).ContainerStatuses[0].RestartCount; n != 1 {
			t.Errorf("the container was started again %d times, want once", n)
		}
		time.Sleep(time.Minute)
		r.expectPods(t, "after a minute", count, 2, 0)
		if err := r.DeletePod(t.Context(), pods[8]); err != nil {
			t.Fatal(err)
		}
		if err := r.api.Remove("pod-009"); err != nil { // in the console
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.expectPods(t, "without those that are gone", count-2, 2, 0)
		time.Sleep(describedMaxAge)
		r.expectPods(t, "after some minutes", count-2, 2, 13)
		time.Sleep(20 * time.Second)
		r.create(t, newPod("another"))
		r.expectPods(t, "after another was created", count-1, 1, 1)
	})
}

// A list that fails after the statuses were read shows changes the next time.
func TestChangeWhoseDescriptionFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		var pods []*corev1.Pod
		for i := range 250 {
			pods = append(pods, r.create(t, newPod(fmt.Sprintf("pod-%03d", i))))
		}
		time.Sleep(2 * time.Minute)
		r.expectPods(t, "at the beginning", 250, 2, 13)
		time.Sleep(10 * time.Second)
		if err := r.api.Exit("pod-007", "main", 1); err != nil {
			t.Fatal(err)
		}
		r.refuse("DescribeContainerGroups", 1, http.StatusInternalServerError, "InternalError", "no")
		if _, err := r.GetPods(t.Context()); err == nil {
			t.Fatal("the list does not fail")
		}
		time.Sleep(35 * time.Second)
		r.expectPods(t, "afterwards", 250, 1, 1)
		if n := r.status(t, pods[7]).ContainerStatuses[0].RestartCount; n != 1 {
			t.Errorf("the container was started again %d times, want once", n)
		}
	})
}

// An update that is refused changes nothing: no list lacks the group.
func TestGroupWhoseUpdateIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		var pods []*corev1.Pod
		for i := range 250 {
			pods = append(pods, r.create(t, newPod(fmt.Sprintf("pod-%03d", i))))
		}
		time.Sleep(2 * time.Minute)
		r.expectPods(t, "at the beginning", 250, 2, 13)
		changed := pods[7].DeepCopy()
		changed.Spec.Containers[0].Image = "busybox:2"
		r.refuse("UpdateContainerGroup", 1, http.StatusBadRequest, "InvalidParameter.Container", "no")
		if err := r.UpdatePod(t.Context(), changed); err == nil {
			t.Fatal("the update is not refused")
		}
		r.expectPods(t, "after the update", 250, 1, 1)
	})
}

// A group that is gone when it is to be described does not come back, and is no error, also if it
// is the only one to be described.
func TestGroupThatIsGoneWhenItIsDescribed(t *testing.T) {
	for _, changed := range [][]string{{"pod-007", "pod-008"}, {"pod-007"}} {
		inVirtualTime(t, func(t *testing.T, r *rig) {
			for i := range 250 {
				r.create(t, newPod(fmt.Sprintf("pod-%03d", i)))
			}
			time.Sleep(2 * time.Minute)
			r.expectPods(t, "at the beginning", 250, 2, 13)
			time.Sleep(10 * time.Second)
			for _, pod := range changed {
				if err := r.api.Exit(pod, "main", 1); err != nil {
					t.Fatal(err)
				}
			}
			go func() { // between the statuses and the descriptions
				time.Sleep(500 * time.Millisecond)
				_ = r.api.Remove("pod-007")
			}()
			r.api.Delay("DescribeContainerGroups", 1, time.Second)
			for range 3 {
				if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 249 {
					t.Errorf("%q have changed: there are %d pods, error %v", changed, len(pods), err)
				}
				time.Sleep(5 * time.Second)
			}
		})
	}
}

// That a spot group is to be taken back is an event three minutes before, which changes no status.
// The pod is disrupted then, and has not failed by itself.
func TestSpotGroupThatIsTakenBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		pod := newPod("spot")
		pod.Annotations = map[string]string{annotationPrefix + "eci-spot-strategy": "SpotAsPriceGo"}
		r.create(t, pod)
		r.create(t, newPod("other"))
		r.expectPods(t, "at the beginning", 2, 1, 1)
		time.Sleep(2 * time.Minute)
		r.expectPods(t, "after two minutes", 2, 1, 1)
		before := len(r.home.Events.Events)
		if err := r.api.Change("spot", func(u *grouptest.Unit) {
			u.Events = append(u.Events, podgroup.Event{Type: "Warning", Reason: "SpotToBeReleased", Message: "in 3 minutes", At: time.Now()})
		}); err != nil {
			t.Fatal(err)
		}
		for range 14 { // the controller's rounds of 70 seconds
			time.Sleep(5 * time.Second)
			if _, err := r.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.home.Events.Events) - before; n != 1 {
			t.Errorf("a minute after the announcement there are %d more events", n)
		}
		if err := r.api.SetStatus("spot", "Expired", "SpotReleased", "taken back"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		status := r.status(t, pod)
		isDisrupted := slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		})
		if status.Phase != corev1.PodFailed || status.Reason != "Expired" || !isDisrupted {
			t.Errorf("the pod is %s, %s, with the conditions %v", status.Phase, status.Reason, status.Conditions)
		}
	})
}

// ECI forgets groups that have ended an hour ago, but the newest 100. What ended while the node was
// away is not run again.
func TestGroupsThatECIForgets(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		var pods []*corev1.Pod
		for i := range 103 {
			pod := newPod(fmt.Sprintf("job-%03d", i))
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pods = append(pods, r.create(t, pod).DeepCopy())
			pods[i].Status = *r.status(t, pod) // as the controller has it in the API
			r.home.SetPod(pods[i])
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			if err := r.api.Exit(pod.Name, "main", 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		r.restart(t)
		created := r.api.Calls("CreateContainerGroup")
		if found, err := r.GetPods(t.Context()); err != nil || len(found) != 100 {
			t.Fatalf("%d groups are left, error %v", len(found), err)
		}
		if phase := r.status(t, pods[102]).Phase; phase != corev1.PodSucceeded {
			t.Errorf("the pod of a group that is left is %s", phase)
		}
		if err := r.CreatePod(t.Context(), pods[0]); err == nil || errdefs.IsPermanent(err) {
			t.Errorf("a group that one list does not have counts as gone: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := r.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.CreatePod(t.Context(), pods[0]); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "UnitGone") {
			t.Errorf("the pod of a group that was forgotten is created with %v", err)
		}
		if n := r.api.Calls("CreateContainerGroup") - created; n != 0 {
			t.Errorf("%d groups were created", n)
		}
	})
}
