package mock_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

var _ nodeutil.Provider = (*mock.Provider)(nil)

func TestRunsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{HostIP: "10.9.8.7"})
		r := receive(t, p)
		pod := newPod("p")
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox"}, {Name: "side", RestartPolicy: &always}}
		mustCreate(t, p, pod)

		s := mustStatus(t, p, pod)
		if s.Phase != corev1.PodRunning || s.HostIP != "10.9.8.7" || s.HostIPs[0].IP != "10.9.8.7" || s.StartTime == nil || s.ObservedGeneration != 1 {
			t.Errorf("status is %+v", s)
		}
		if ip, err := netip.ParseAddr(s.PodIP); err != nil || !ip.IsPrivate() || s.PodIPs[0].IP != s.PodIP {
			t.Errorf("pod IPs are %q and %v", s.PodIP, s.PodIPs)
		}
		for _, c := range []corev1.PodConditionType{
			corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodScheduled, corev1.PodReadyToStartContainers,
		} {
			if conditionOf(s, c) != corev1.ConditionTrue {
				t.Errorf("%s is %q", c, conditionOf(s, c))
			}
		}
		c := s.ContainerStatuses[0]
		if c.State.Running == nil || !c.Ready || c.Started == nil || !*c.Started || c.Image != "nginx" || c.ImageID == "" ||
			len(c.ContainerID) < 10 || c.ContainerID[:7] != "mock://" {
			t.Errorf("container status is %+v", c)
		}
		if i := s.InitContainerStatuses[0]; i.State.Terminated == nil || i.State.Terminated.ExitCode != 0 || !i.Ready {
			t.Errorf("init container status is %+v", i)
		}
		if i := s.InitContainerStatuses[1]; i.State.Running == nil || !i.Ready {
			t.Errorf("sidecar status is %+v", i)
		}
		synctest.Wait()
		wantPhases(t, r, "p", corev1.PodRunning)
	})
}

func TestDelays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{ReadyDelay: time.Hour})
		r := receive(t, p)
		pod := newPod("p", "start-delay", "2s", "ready-delay", "1s")
		mustCreate(t, p, pod)
		pass(time.Second)
		s := mustStatus(t, p, pod)
		if s.Phase != corev1.PodPending || s.PodIP != "" || s.ContainerStatuses[0].State.Waiting == nil ||
			conditionOf(s, corev1.PodReady) != corev1.ConditionFalse {
			t.Errorf("after 1s: %+v", s)
		}
		pass(time.Second)
		s = mustStatus(t, p, pod)
		if s.Phase != corev1.PodRunning || conditionOf(s, corev1.PodReady) != corev1.ConditionFalse || s.ContainerStatuses[0].Ready {
			t.Errorf("after 2s: %+v", s)
		}
		pass(time.Second)
		s = mustStatus(t, p, pod)
		if conditionOf(s, corev1.PodReady) != corev1.ConditionTrue || !s.ContainerStatuses[0].Ready {
			t.Errorf("after 3s: %+v", s)
		}
		wantPhases(t, r, "p", corev1.PodPending, corev1.PodRunning, corev1.PodRunning)
	})
}

func TestStartJitterIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{StartDelay: time.Second, StartJitter: 10 * time.Second})
		begin := time.Now()
		distinct := map[time.Duration]bool{}
		for i := range 20 {
			pod := newPod(fmt.Sprint("p", i))
			mustCreate(t, p, pod)
		}
		pass(11 * time.Second)
		for i := range 20 {
			s := mustStatus(t, p, newPod(fmt.Sprint("p", i)))
			after := s.ContainerStatuses[0].State.Running.StartedAt.Sub(begin)
			if after < time.Second || after > 11*time.Second {
				t.Errorf("started after %s", after)
			}
			distinct[after] = true
		}
		if len(distinct) < 10 {
			t.Errorf("only %d different delays", len(distinct))
		}
	})
}

func TestCompletes(t *testing.T) {
	for name, tc := range map[string]struct {
		policy      corev1.RestartPolicy
		annotations []string
		cfg         mock.Config
		after       time.Duration
		phase       corev1.PodPhase
		code        int32
	}{
		"run-for":                    {corev1.RestartPolicyNever, []string{"run-for", "3s"}, mock.Config{}, 3 * time.Second, corev1.PodSucceeded, 0},
		"run-for, not yet":           {corev1.RestartPolicyNever, []string{"run-for", "3s"}, mock.Config{}, 2 * time.Second, corev1.PodRunning, 0},
		"exit code":                  {corev1.RestartPolicyNever, []string{"run-for", "3s", "exit-code", "7"}, mock.Config{}, 3 * time.Second, corev1.PodFailed, 7},
		"OnFailure":                  {corev1.RestartPolicyOnFailure, []string{"run-for", "3s"}, mock.Config{}, 3 * time.Second, corev1.PodSucceeded, 0},
		"OnFailure that fails":       {corev1.RestartPolicyOnFailure, []string{"run-for", "3s", "exit-code", "7"}, mock.Config{}, 3 * time.Second, corev1.PodRunning, 0},
		"Always":                     {corev1.RestartPolicyAlways, []string{"run-for", "3s"}, mock.Config{}, 3 * time.Second, corev1.PodRunning, 0},
		"Job":                        {corev1.RestartPolicyNever, nil, mock.Config{}, time.Second, corev1.PodSucceeded, 0},
		"Job, at once":               {corev1.RestartPolicyNever, nil, mock.Config{JobDuration: -1}, 0, corev1.PodSucceeded, 0},
		"Job that is kept":           {corev1.RestartPolicyNever, nil, mock.Config{KeepJobs: true}, 24 * time.Hour, corev1.PodRunning, 0},
		"Job of another duration":    {corev1.RestartPolicyOnFailure, nil, mock.Config{JobDuration: time.Minute}, time.Minute, corev1.PodSucceeded, 0},
		"Job with a code":            {corev1.RestartPolicyNever, []string{"exit-code", "3"}, mock.Config{}, time.Second, corev1.PodFailed, 3},
		"run-for counts from start":  {corev1.RestartPolicyNever, []string{"run-for", "3s", "start-delay", "2s"}, mock.Config{}, 4 * time.Second, corev1.PodRunning, 0},
		"a pod that is meant to run": {corev1.RestartPolicyAlways, nil, mock.Config{}, 24 * time.Hour, corev1.PodRunning, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := newProvider(t, tc.cfg)
				pod := newPod("p", tc.annotations...)
				pod.Spec.RestartPolicy = tc.policy
				mustCreate(t, p, pod)
				pass(tc.after)
				s := mustStatus(t, p, pod)
				if s.Phase != tc.phase {
					t.Fatalf("phase %s, want %s", s.Phase, tc.phase)
				}
				terminated := s.ContainerStatuses[0].State.Terminated
				if done := tc.phase != corev1.PodRunning; (terminated != nil) != done || done && terminated.ExitCode != tc.code {
					t.Errorf("terminated is %+v", terminated)
				}
			})
		})
	}
}

func TestRestartsWithBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		pod := newPod("p", "run-for", "3s", "exit-code", "2")
		mustCreate(t, p, pod)
		pass(3 * time.Second)
		c := mustStatus(t, p, pod).ContainerStatuses[0]
		if c.State.Waiting == nil || c.State.Waiting.Reason != "CrashLoopBackOff" || c.LastTerminationState.Terminated.ExitCode != 2 {
			t.Errorf("after the exit: %+v", c)
		}
		if _, err := p.GetContainerLogs(ctx, "ns", "p", "c", logOpts{Previous: true}); err != nil {
			t.Errorf("no previous logs in back-off: %v", err)
		}
		pass(time.Second)
		c = mustStatus(t, p, pod).ContainerStatuses[0]
		if c.State.Running == nil || c.RestartCount != 1 || !c.Ready || c.LastTerminationState.Terminated.ExitCode != 2 {
			t.Errorf("after the restart: %+v", c)
		}
		pass(3*time.Second + 2*time.Second) // the second back-off is longer
		if c = mustStatus(t, p, pod).ContainerStatuses[0]; c.State.Running == nil || c.RestartCount != 2 {
			t.Errorf("after the second restart: %+v", c)
		}
	})
}

func TestActiveDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		pod := newPod("p")
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](5)
		mustCreate(t, p, pod)
		pass(5 * time.Second)
		if s := mustStatus(t, p, pod); s.Phase != corev1.PodFailed || s.Reason != "DeadlineExceeded" {
			t.Errorf("phase %s, reason %s", s.Phase, s.Reason)
		}
	})
}

func TestDelete(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations []string
		grace       *int64
		after       time.Duration
		phase       corev1.PodPhase
		code        int32
	}{
		"at once":            {nil, ptr.To[int64](30), 0, corev1.PodSucceeded, 0},
		"with a delay":       {[]string{"stop-delay", "5s"}, ptr.To[int64](30), 5 * time.Second, corev1.PodSucceeded, 0},
		"grace runs out":     {[]string{"stop-delay", "50s"}, ptr.To[int64](10), 10 * time.Second, corev1.PodFailed, 137},
		"killed":             {[]string{"stop-delay", "5s"}, ptr.To[int64](0), 0, corev1.PodFailed, 137},
		"killed, no delay":   {nil, ptr.To[int64](0), 0, corev1.PodFailed, 137},
		"spec's grace":       {[]string{"stop-delay", "50s"}, nil, 30 * time.Second, corev1.PodFailed, 137},
		"before it started":  {[]string{"start-delay", "1h"}, ptr.To[int64](30), 0, corev1.PodFailed, 137},
		"grace just enough":  {[]string{"stop-delay", "10s"}, ptr.To[int64](10), 10 * time.Second, corev1.PodSucceeded, 0},
		"exits on the way":   {[]string{"stop-delay", "10s", "run-for", "4s", "exit-code", "9"}, ptr.To[int64](30), 4 * time.Second, corev1.PodFailed, 9},
		"has exited already": {[]string{"run-for", "0s", "exit-code", "9", "stop-delay", "10s"}, ptr.To[int64](0), 0, corev1.PodFailed, 9},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := newProvider(t, mock.Config{})
				pod := newPod("p", tc.annotations...)
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				if len(tc.annotations) < 3 {
					pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
				}
				mustCreate(t, p, pod)
				r := receive(t, p)
				pod.DeletionGracePeriodSeconds = tc.grace
				if err := p.DeletePod(ctx, pod); err != nil {
					t.Fatal(err)
				}
				if tc.after > 0 {
					pass(tc.after - time.Nanosecond)
					if _, err := p.GetPod(ctx, "ns", "p"); err != nil {
						t.Errorf("before its end: %v", err)
					}
					pass(time.Nanosecond)
				}
				synctest.Wait()
				if _, err := p.GetPod(ctx, "ns", "p"); !errdefs.IsNotFound(err) {
					t.Errorf("after its end: %v", err)
				}
				last := r.last()
				if last == nil || last.Status.Phase != tc.phase {
					t.Fatalf("last notified was %+v", last)
				}
				if got := last.Status.ContainerStatuses[0].State.Terminated; got == nil || got.ExitCode != tc.code {
					t.Errorf("terminated is %+v, want code %d", got, tc.code)
				}
				if err := p.DeletePod(ctx, pod); !errdefs.IsNotFound(err) {
					t.Errorf("another delete: %v", err)
				}
			})
		})
	}
}

func TestDeleteAgainBringsTheEndForward(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{StopDelay: time.Hour})
		pod := newPod("p")
		mustCreate(t, p, pod)
		r := receive(t, p)
		for _, grace := range []int64{3600, 60, 3600, 60} {
			pod.DeletionGracePeriodSeconds = &grace
			if err := p.DeletePod(ctx, pod); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		wantPhases(t, r, "p", corev1.PodRunning, corev1.PodRunning)
		pod.DeletionGracePeriodSeconds = ptr.To[int64](0)
		if err := p.DeletePod(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if _, err := p.GetPod(ctx, "ns", "p"); !errdefs.IsNotFound(err) {
			t.Errorf("after the kill: %v", err)
		}
	})
}

func TestDoubleCreate(t *testing.T) {
	p := newProvider(t, mock.Config{})
	pod := newPod("p")
	mustCreate(t, p, pod)
	if err := p.CreatePod(ctx, pod); !errdefs.IsConflict(err) {
		t.Errorf("the same UID: %v", err)
	}
	other := newPod("p")
	other.UID = "another"
	if err := p.CreatePod(ctx, other); !errdefs.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if err := p.DeletePod(ctx, other); !errdefs.IsNotFound(err) {
		t.Errorf("delete of another UID: %v", err)
	}
	if err := p.UpdatePod(ctx, other); !errdefs.IsNotFound(err) {
		t.Errorf("update of another UID: %v", err)
	}
	if err := p.DeletePod(ctx, pod); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, p, other)
}

func TestUnknownPod(t *testing.T) {
	p := newProvider(t, mock.Config{})
	pod := newPod("p")
	_, getErr := p.GetPod(ctx, "ns", "p")
	_, statusErr := p.GetPodStatus(ctx, "ns", "p")
	_, logErr := p.GetContainerLogs(ctx, "ns", "p", "c", logOpts{})
	for name, err := range map[string]error{
		"GetPod": getErr, "GetPodStatus": statusErr, "GetContainerLogs": logErr,
		"UpdatePod": p.UpdatePod(ctx, pod), "DeletePod": p.DeletePod(ctx, pod),
		"RunInContainer":    p.RunInContainer(ctx, "ns", "p", "c", []string{"echo"}, newStreams("")),
		"AttachToContainer": p.AttachToContainer(ctx, "ns", "p", "c", newStreams("")),
		"PortForward":       p.PortForward(ctx, "ns", "p", 80, nil),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFailCreate(t *testing.T) {
	p := newProvider(t, mock.Config{})
	for class, is := range map[string]func(error) bool{
		"permanent": errdefs.IsPermanent, "unavailable": errdefs.IsUnavailable, "conflict": errdefs.IsConflict,
		"invalid_input": errdefs.IsInvalidInput, "not_found": errdefs.IsNotFound,
		"retry_after": func(err error) bool { d, ok := errdefs.RetryAfter(err); return ok && d == time.Second },
		"unknown":     func(err error) bool { return errdefs.ClassOf(err) == errdefs.UnknownClass },
	} {
		err := p.CreatePod(ctx, newPod("p", "fail-create", "no luck", "fail-class", class))
		if err == nil || err.Error() != "no luck" || !is(err) {
			t.Errorf("%s: %v", class, err)
		}
	}
	pod := newPod("twice", "fail-create", "no luck", "fail-create-times", "2")
	for i := range 3 {
		if err := p.CreatePod(ctx, pod); (err == nil) != (i == 2) {
			t.Errorf("try %d: %v", i, err)
		}
	}
	if pods, _ := p.GetPods(ctx); len(pods) != 1 {
		t.Errorf("%d pods are held", len(pods))
	}
}

func TestBadAnnotations(t *testing.T) {
	p := newProvider(t, mock.Config{})
	for _, annotations := range [][]string{
		{"start-delay", "soon"}, {"start-jitter", "-1s"}, {"run-for", "x"}, {"ready-delay", "1"}, {"stop-delay", "1 s"},
		{"exit-code", "x"}, {"exit-code", "256"}, {"exit-code", "-1"},
		{"fail-create", "x", "fail-create-times", "-1"}, {"fail-create", "x", "fail-class", "bad"},
	} {
		if err := p.CreatePod(ctx, newPod("p", annotations...)); !errdefs.IsInvalidInput(err) {
			t.Errorf("%v: %v", annotations, err)
		}
	}
	if err := p.CreatePod(ctx, &corev1.Pod{}); !errdefs.IsInvalidInput(err) {
		t.Errorf("a pod without a name: %v", err)
	}
}

func TestUpdate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p"))
		r := receive(t, p)
		pod := newPod("p", "run-for", "1m")
		pod.Generation = 2
		pod.Labels = map[string]string{"a": "b"}
		pod.Spec.Containers[0].Image = "nginx:2"
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		if err := p.UpdatePod(ctx, pod); err != nil {
			t.Fatal(err)
		}
		got, err := p.GetPod(ctx, "ns", "p")
		if err != nil {
			t.Fatal(err)
		}
		if got.Labels["a"] != "b" || got.Status.ContainerStatuses[0].Image != "nginx:2" || got.Status.ObservedGeneration != 2 {
			t.Errorf("got %+v", got)
		}
		if e := got.Status.EphemeralContainerStatuses; len(e) != 1 || e[0].State.Running == nil {
			t.Errorf("ephemeral containers are %+v", e)
		}
		if got.Status.Phase != corev1.PodRunning || got.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the update restarted it: %+v", got.Status)
		}
		synctest.Wait()
		if last := r.last(); last == nil || last.Labels["a"] != "b" {
			t.Errorf("notified %+v", last)
		}
		pass(time.Minute)
		if c := mustStatus(t, p, pod).ContainerStatuses[0]; c.State.Waiting == nil {
			t.Errorf("the new annotation has no effect: %+v", c)
		}
	})
}

func TestCopies(t *testing.T) {
	p := newProvider(t, mock.Config{})
	mustCreate(t, p, newPod("p"))
	first, _ := p.GetPod(ctx, "ns", "p")
	first.Labels = map[string]string{"x": "y"}
	first.Annotations["x"] = "y"
	first.Status.ContainerStatuses[0].Name = "changed"
	status, _ := p.GetPodStatus(ctx, "ns", "p")
	status.ContainerStatuses[0].Name = "changed"
	got, _ := p.GetPod(ctx, "ns", "p")
	if got.Spec.Containers[0].Name != "c" || got.Annotations["x"] != "" ||
		got.Status.ContainerStatuses[0].Name != "c" {
		t.Errorf("a change by a caller shows: %+v", got)
	}
}

// A list is of the moment when it was asked for, and does not change with its pods.
func TestListsDoNotChange(t *testing.T) {
	p := newProvider(t, mock.Config{})
	mustCreate(t, p, newPod("p"))
	list, _ := p.GetPods(ctx)
	before := list[0].DeepCopy()
	if err := p.UpdatePod(ctx, newPod("p", "stop-delay", "1s")); err != nil {
		t.Fatal(err)
	}
	if err := p.DeletePod(ctx, newPod("p")); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(list[0], before) {
		t.Errorf("the pod of an earlier list is %+v, and was %+v", list[0], before)
	}
}

func TestThousandPods(t *testing.T) {
	p := newProvider(t, mock.Config{})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			for j := range 100 {
				if err := p.CreatePod(ctx, newPod(fmt.Sprintf("p-%d-%d", i, j))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	pods, err := p.GetPods(ctx)
	if err != nil || len(pods) != 1000 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	ips := map[string]bool{}
	for _, pod := range pods {
		ips[pod.Status.PodIP] = true
	}
	if len(ips) != 1000 {
		t.Errorf("%d addresses", len(ips))
	}
}

func TestAddressesAreReleasedAndRunOut(t *testing.T) {
	p := newProvider(t, mock.Config{PodCIDR: "10.1.1.0/30"})
	for i := range 3 {
		mustCreate(t, p, newPod(fmt.Sprint("p", i)))
	}
	if err := p.CreatePod(ctx, newPod("one-more")); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	host := newPod("host")
	host.Spec.HostNetwork = true
	mustCreate(t, p, host)
	if s := mustStatus(t, p, host); s.PodIP != s.HostIP {
		t.Errorf("pod IP is %s", s.PodIP)
	}
	if err := p.DeletePod(ctx, newPod("p1")); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, p, newPod("one-more"))
}

// TestEverybodyAtOnce is for the race detector.
func TestEverybodyAtOnce(t *testing.T) {
	p := newProvider(t, mock.Config{StartJitter: time.Millisecond, ReadyDelay: time.Millisecond})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	p.NotifyPods(ctx, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"mine": "now"}
		pod.Status.Conditions = nil
		_, _ = p.GetPod(ctx, pod.Namespace, pod.Name) // calls back, and does not deadlock
	})
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				pod := newPod(fmt.Sprintf("p-%d-%d", i, j))
				if err := p.CreatePod(ctx, pod); err != nil {
					t.Error(err)
				}
				_ = p.UpdatePod(ctx, newPod(pod.Name, "stop-delay", "1ms"))
				if j%2 == 0 {
					_ = p.DeletePod(ctx, pod)
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				pods, _ := p.GetPods(ctx)
				for _, pod := range pods {
					_ = pod.DeepCopy() // reads all of it
				}
				_, _ = p.GetStatsSummary(ctx)
				_, _ = p.GetMetricsResource(ctx)
			}
		})
	}
	wg.Wait()
}

func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, err := mock.New(mock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := receive(t, p)
		mustCreate(t, p, newPod("p", "start-delay", "1s"))
		synctest.Wait()
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		pass(time.Minute)
		wantPhases(t, r, "p", corev1.PodPending)
		if _, err := p.GetPod(ctx, "ns", "p"); err != nil {
			t.Errorf("a pod cannot be read after the end: %v", err)
		}
		for name, err := range map[string]error{
			"CreatePod": p.CreatePod(ctx, newPod("q")), "UpdatePod": p.UpdatePod(ctx, newPod("p")),
			"DeletePod": p.DeletePod(ctx, newPod("p")), "Ping": p.Ping(ctx),
		} {
			if !errdefs.IsUnavailable(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestSeveralReceiversAndTheirEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		first, second := receive(t, p), &receiver{}
		ctx2, cancel := context.WithCancelCause(ctx)
		p.NotifyPods(ctx2, func(pod *corev1.Pod) {
			second.mu.Lock()
			defer second.mu.Unlock()
			second.pods = append(second.pods, pod)
		})
		mustCreate(t, p, newPod("a"))
		synctest.Wait()
		cancel(errors.New("enough"))
		synctest.Wait()
		mustCreate(t, p, newPod("b"))
		synctest.Wait()
		wantPhases(t, first, "b", corev1.PodRunning)
		wantPhases(t, second, "a", corev1.PodRunning)
		wantPhases(t, second, "b")
	})
}
