package zun

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/internal/wire"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/zuntest"
)

// Newer versions of Zun do not show how init containers end. Zun has gone on, so that the pod
// must not fail while the images of its containers are pulled.
func TestEndOfInitContainersIsHidden(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		inBubble(t, func(t *testing.T, r *rig) {
			r.server.HideContainers = true
			pod := grouptest.NewPod("init")
			pod.Spec.RestartPolicy = policy
			pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox"}}
			r.create(t, pod)
			err := r.world.Change(pod.Name, func(u *grouptest.Unit) {
				u.Phase, u.Container("main").Now = podgroup.Pending, podgroup.Run{}
			})
			if err != nil {
				t.Fatal(err)
			}
			status := r.status(t, pod)
			if end := status.InitContainerStatuses[0].State.Terminated; status.Phase != corev1.PodPending || end == nil || end.ExitCode != 0 || end.Message == "" {
				t.Errorf("%s, while the image is pulled: %+v", policy, status)
			}
			before := r.world.Calls(zuntest.ActionShow)
			err = r.world.Change(pod.Name, func(u *grouptest.Unit) {
				u.Phase, u.Container("main").Now = podgroup.Running, podgroup.Run{State: podgroup.Executing, Started: time.Now()}
			})
			if err != nil {
				t.Fatal(err)
			}
			if status := r.status(t, pod); status.Phase != corev1.PodRunning || !status.ContainerStatuses[0].Ready || status.InitContainerStatuses[0].State.Terminated == nil {
				t.Errorf("%s, when it runs: %+v", policy, status)
			}
			if n := r.world.Calls(zuntest.ActionShow) - before; n != 0 {
				t.Errorf("%s: the init container was asked for %d times more", policy, n)
			}
		})
	}
}

// shown returns the unit of a capsule as Zun writes it.
func shown(t *testing.T, text string) podgroup.Unit {
	t.Helper()
	server := zuntest.New(grouptest.New(time.Second))
	server.HideContainers = true
	b, err := newBackend(testConfig(), connect(t, server))
	if err != nil {
		t.Fatal(err)
	}
	var c capsule
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return b.unit(t.Context(), &c)
}

// Where a capsule has init containers, Zun gives all of its containers the policy of these, and
// gives up: a pod whose containers are not started again has ended.
func TestContainersThatAreNotStartedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		container string
		phase     podgroup.Phase
		state     podgroup.State
	}{
		"gave up":               {`"status": "Stopped", "status_detail": "Exited(3) 2 mins ago ", "restart_policy": {"Name": "on-failure", "MaximumRetryCount": "10"}`, podgroup.Failed, podgroup.Terminated},
		"gave up, as a number":  {`"status": "Stopped", "status_detail": "Exited(3) 2 mins ago ", "restart_policy": {"Name": "on-failure", "MaximumRetryCount": 10}`, podgroup.Failed, podgroup.Terminated},
		"was successful":        {`"status": "Stopped", "status_detail": "Exited(0) 2 mins ago ", "restart_policy": {"Name": "on-failure", "MaximumRetryCount": "10"}`, podgroup.Succeeded, podgroup.Terminated},
		"its end is not shown":  {`"status": "Stopped", "restart_policy": {"Name": "on-failure", "MaximumRetryCount": "0"}`, podgroup.Failed, podgroup.Terminated},
		"was lost":              {`"status": "Error", "status_reason": "No such container: 1 in docker"`, podgroup.Failed, podgroup.Terminated},
		"is to be started soon": {`"status": "Stopped", "status_detail": "Exited(3) 2 mins ago "`, podgroup.Running, podgroup.Waiting},
	} {
		u := shown(t, `{"uuid": "u", "status": "Running", "restart_policy": {"Name": "always", "MaximumRetryCount": "0"}, "updated_at": "2026-01-02 03:04:05",
			"containers": [{"uuid": "c", "environment": {"`+wire.EnvName+`": "main"}, `+test.container+`}]}`)
		if u.Phase != test.phase || len(u.Containers) != 1 || u.Containers[0].Now.State != test.state {
			t.Errorf("a container that %s: %+v", name, u)
		}
	}
}

// A capsule of another program in the project does not keep the list from being read.
func TestLabelsOfOthers(t *testing.T) {
	u := shown(t, `{"uuid": "u", "status": "Running", "labels": {"PodName": "a", "count": 5, "more": {"a": null}},
		"containers": [{"uuid": "c", "status": "Running", "environment": {"PORT": 80, "`+wire.EnvName+`": "main"}}]}`)
	if len(u.Tags) != 1 || u.Tags["PodName"] != "a" || len(u.Containers) != 1 {
		t.Errorf("%+v", u)
	}
	if u := shown(t, `{"uuid": "u", "labels": "none"}`); u.ID != "u" || len(u.Tags) != 0 {
		t.Errorf("%+v", u)
	}
}

// Containers of capsules of other nodes are not asked for.
func TestCapsulesOfOtherNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		template := &wire.Template{Kind: "capsule"}
		template.Metadata.Name, template.Spec.Containers = "other", []wire.Container{{Image: "busybox:1", Env: map[string]string{wire.EnvName: "main"}}}
		_, err := r.world.Create(grouptest.Spec{
			Tags: map[string]string{podgroup.TagPodName: "other", podgroup.TagClusterName: "home", podgroup.TagNodeName: "elsewhere", podgroup.TagNamespace: "default", podgroup.TagUID: "u"},
			Data: template, Containers: []podgroup.Container{{Name: "main", Image: "busybox:1"}}, RestartPolicy: "Never",
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := r.world.Exit("other", "main", 0); err != nil {
			t.Fatal(err)
		}
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 0 || r.world.Calls(zuntest.ActionShow) != 0 {
			t.Errorf("%v, %v after %d calls", pods, err, r.world.Calls(zuntest.ActionShow))
		}
	})
}

func TestEndsAreForgotten(t *testing.T) {
	c := endsCache{now: map[string]end{}}
	c.set("a", end{code: 3})
	c.set("b", end{code: 4})
	for range 3 { // lists that have a
		c.begin()
		if e, ok := c.get("a"); !ok || e.code != 3 {
			t.Fatalf("%+v, %t", e, ok)
		}
	}
	if e, ok := c.get("b"); ok || len(c.now)+len(c.before) > 2 {
		t.Errorf("%+v of a container that no list has", e)
	}
}

// Zun waits for a minute for a host that is down.
func TestContainerOfHostThatIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("slow")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.create(t, pod)
		if err := r.world.Exit(pod.Name, "main", 3); err != nil {
			t.Fatal(err)
		}
		r.world.Delay(zuntest.ActionShow, 1, 5*time.Minute)
		start := time.Now()
		if status := r.status(t, pod); status.Phase != corev1.PodRunning {
			t.Errorf("it is not known how the container ended: %+v", status)
		}
		if waited := time.Since(start); waited > 2*showTimeout {
			t.Errorf("the list took %s", waited)
		}
		if status := r.status(t, pod); status.Phase != corev1.PodFailed || status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			t.Errorf("the host is up: %+v", status)
		}
	})
}

// A volume is in use until the capsule before has given it back.
func TestVolumeThatIsStillInUse(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		if _, err := r.GetPods(t.Context()); err != nil { // as an agent does when it starts
			t.Fatal(err)
		}
		pod := grouptest.NewPod("next")
		r.cluster.SetPod(pod)
		r.world.Refuse(zuntest.ActionCreate, 1, &grouptest.Refusal{Status: http.StatusBadRequest, Message: "Volume " + volumeID + " is still in use."})
		if err := r.CreatePod(t.Context(), pod); err == nil || errdefs.IsPermanent(err) || !errdefs.IsConflict(err) {
			t.Errorf("it is not tried again: %v", err)
		}
		grouptest.CheckLeaves(t, r.cluster, r, pod)
		r.cluster.SetPod(pod)
		r.world.Refuse(zuntest.ActionCreate, 1, &grouptest.Refusal{Status: http.StatusForbidden, Message: "Policy doesn't allow container:create:image_pull_policy to be performed."})
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "imagePullPolicy") {
			t.Errorf("a pull policy that is not allowed, of which Zun keeps a capsule: %v", err)
		}
	})
}

// Before a capsule is created it is asked for.
func TestCapsuleThatCannotBeAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		if _, err := r.GetPods(t.Context()); err != nil { // as an agent does when it starts
			t.Fatal(err)
		}
		pod := grouptest.NewPod("unasked")
		r.cluster.SetPod(pod)
		r.world.Refuse(zuntest.ActionGet, 1, &grouptest.Refusal{Status: http.StatusServiceUnavailable, Message: "no"})
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) || r.world.Calls(zuntest.ActionCreate) != 0 {
			t.Errorf("after %d creations the error is %v", r.world.Calls(zuntest.ActionCreate), err)
		}
		grouptest.CheckLeaves(t, r.cluster, r, pod)
	})
}

// Where no host is free, pods wait: controllers would replace those that fail again and again.
func TestNoHostForCapsule(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.server.NoHosts = true
		pod := grouptest.NewPod("large")
		r.cluster.SetPod(pod)
		err := r.CreatePod(t.Context(), pod)
		if delay, later := errdefs.RetryAfter(err); !later || delay < time.Minute || errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "not enough hosts") {
			t.Errorf("the creation: %v", err)
		}
		if units := r.world.Units(nil); len(units) != 0 {
			t.Errorf("capsules are left: %+v", units)
		}
		r.server.NoHosts = false
		r.create(t, pod)
		if status := r.status(t, pod); status.Phase != corev1.PodRunning {
			t.Errorf("%+v", status)
		}
	})
}

// Zun starts the containers of a capsule one after the other. If it cannot start one, those before run
// on in a capsule whose status is Error: it is deleted before its pod counts as failed.
func TestCapsuleInErrorThatRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := r.halfStarted(t, "half")
		r.world.Refuse(zuntest.ActionDelete, 1, &grouptest.Refusal{Status: http.StatusServiceUnavailable, Message: "no"})
		if status := r.status(t, pod); status.Phase == corev1.PodFailed || r.world.Calls(zuntest.ActionDelete) != 1 {
			t.Errorf("after %d deletions, of which none has succeeded: %+v", r.world.Calls(zuntest.ActionDelete), status)
		}
		status := r.status(t, pod)
		if status.Phase != corev1.PodFailed || status.Reason != "CapsuleError" || !strings.Contains(status.Message, "no such image") {
			t.Errorf("the capsule is deleted: %+v", status)
		}
		time.Sleep(5 * time.Second)
		if units := r.world.Units(nil); len(units) != 0 {
			t.Errorf("capsules are left: %+v", units)
		}
	})
}

// halfStarted makes a capsule in Error of which a container runs.
func (r *rig) halfStarted(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := grouptest.NewPod(name)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "second", Image: "missing"})
	r.create(t, pod)
	if err := r.world.Change(pod.Name, func(u *grouptest.Unit) { u.Container("second").Now = podgroup.Run{} }); err != nil {
		t.Fatal(err)
	}
	if err := r.world.FailUnit(pod.Name, "DockerError", "no such image: missing"); err != nil {
		t.Fatal(err)
	}
	return pod
}

// A deletion that is refused is not repeated with each list.
func TestCapsuleInErrorThatIsNotDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		pod := r.halfStarted(t, "half")
		r.world.Refuse(zuntest.ActionDelete, 7, &grouptest.Refusal{Status: http.StatusForbidden, Message: "no"})
		for range 120 { // ten minutes
			if status := r.status(t, pod); status.Phase == corev1.PodFailed {
				t.Fatalf("its capsule is not deleted: %+v", status)
			}
		}
		if n := r.world.Calls(zuntest.ActionDelete); n != 7 {
			t.Errorf("the deletion was tried %d times", n)
		}
		time.Sleep(time.Minute)
		if status := r.status(t, pod); status.Phase != corev1.PodFailed {
			t.Errorf("the capsule is deleted: %+v", status)
		}
	})
}

// Deletions that a list makes are in the budget of those of pods.
func TestBudgetOfDeletionsOfAList(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		other := grouptest.NewPod("other")
		r.create(t, other)
		r.halfStarted(t, "half")
		r.world.Refuse(zuntest.ActionDelete, 1, &grouptest.Refusal{Status: http.StatusTooManyRequests, Message: "no"})
		if _, err := r.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.DeletePod(t.Context(), other); err == nil || r.world.Calls(zuntest.ActionDelete) != 1 {
			t.Errorf("right after a refusal for too many calls there were %d, %v", r.world.Calls(zuntest.ActionDelete), err)
		}
		time.Sleep(time.Minute)
		if err := r.DeletePod(t.Context(), other); err != nil {
			t.Error(err)
		}
	})
}

// Deletions that hang hold up a list for a few seconds, however many they are.
func TestDeletionsThatHang(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"one", "two", "three"} {
			r.halfStarted(t, name)
		}
		r.world.Delay(zuntest.ActionDelete, 3, time.Hour)
		for range 5 {
			start := time.Now()
			if _, err := r.GetPods(t.Context()); err != nil || time.Since(start) > endTimeout {
				t.Errorf("the list took %s: %v", time.Since(start), err)
			}
			time.Sleep(time.Minute)
		}
		if units := r.world.Units(nil); len(units) != 0 {
			t.Errorf("capsules are left: %+v", units)
		}
	})
}

// Zun repeats what is wrong of a request.
func TestErrorsHaveNoValues(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, message := range []string{
			"Invalid input for field 'template'.Value: '{'spec': {'env': {'TOKEN': 'hush'}}}'. Additional properties are not allowed ('nets' was unexpected)\n\nOn instance['template']:\n {'TOKEN': 'hush'}",
			"Additional properties are not allowed ('nets' was unexpected)\n\nFailed validating 'additionalProperties' in schema\n\nOn instance:\n {'TOKEN': 'hush'}",
		} {
			pod := grouptest.NewPod("secret")
			r.cluster.SetPod(pod)
			r.world.Refuse(zuntest.ActionCreate, 1, &grouptest.Refusal{Status: http.StatusBadRequest, Message: message})
			if err := r.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "'nets' was unexpected") {
				t.Error(err)
			}
		}
	})
	err := classify(podgroup.ActionExec, &url.Error{Op: "Post", URL: "http://zun.test/v1/containers/c/execute?command=hush&run=true", Err: errors.New("no route to host")})
	if text := err.Error(); strings.Contains(text, "hush") || !strings.Contains(text, `"http://zun.test/v1/containers/c/execute": no route to host`) {
		t.Error(text)
	}
}

// answering answers requests of a path itself.
type answering struct {
	http.RoundTripper
	path string
	body io.Reader
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != a.path {
		return a.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(a.body), Request: r}, nil
}

// endless is a log that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat([]byte("line\n"), len(p)/5+1)), nil
}

func TestAnswersThatAreNotZuns(t *testing.T) {
	transport := connect(t, zuntest.New(grouptest.New(time.Second)))
	b, err := newBackend(testConfig(), answering{transport, "/v1/capsules", strings.NewReader(`{"status": "ok"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if page, err := b.List(t.Context(), nil, ""); !errdefs.IsUnavailable(err) {
		t.Errorf("a list without capsules: %+v, %v", page, err)
	}
	if b, err = newBackend(testConfig(), answering{transport, "/v1/containers/c/logs", endless{}}); err != nil {
		t.Fatal(err)
	}
	u := podgroup.Unit{ID: "u", Data: map[string]string{"main": "c"}}
	if text, err := b.ReadLog(t.Context(), &u, "main", podgroup.LogQuery{}); !errdefs.IsInvalidInput(err) || text != "" {
		t.Errorf("a log without an end: %d bytes, %v", len(text), err)
	}
}

// redirecting sends calls that begin like this to another host.
type redirecting struct {
	http.RoundTripper
	t    *testing.T
	path string
}

func (d redirecting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "elsewhere" {
		d.t.Errorf("%s %s goes to another host, with token %q", r.Method, r.URL, r.Header.Get("X-Auth-Token"))
	}
	if !strings.HasPrefix(r.URL.Path, d.path) {
		return d.RoundTripper.RoundTrip(r)
	}
	header := http.Header{"Location": {"http://elsewhere" + r.URL.Path}}
	return &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: header, Body: http.NoBody, Request: r}, nil
}

// Another host gets neither the token nor the password.
func TestRedirectToAnotherHost(t *testing.T) {
	for _, path := range []string{"/v1/capsules", "/v3/auth/tokens"} {
		b, err := newBackend(testConfig(), redirecting{connect(t, zuntest.New(grouptest.New(time.Second))), t, path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.List(t.Context(), nil, ""); !errdefs.IsUnavailable(err) {
			t.Errorf("%s: the error of a list is %v", path, err)
		}
		if err := b.Delete(t.Context(), &podgroup.Unit{ID: "u"}, 0); !errdefs.IsUnavailable(err) {
			t.Errorf("%s: the error of a deletion is %v", path, err)
		}
	}
}
