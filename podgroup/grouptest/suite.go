package grouptest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Suite checks what holds for every backend of package podgroup.
type Suite struct {
	// New makes a backend whose service is a fake on w. It is called in a bubble of
	// testing/synctest, several times for one World where the agent is started again.
	// Connections to the fake have to be in memory (see Dialer).
	New func(t *testing.T, w *World) (podgroup.Backend, podgroup.Options)
	// Actions are the names that the fake gives to World.Serve for the calls of these
	// actions: create and list at least.
	Actions map[podgroup.Action]string
	// Budget is the quota of calls a minute for the check with 1000 pods, of which the
	// backend has one in Options.Budget. Defaults to 2000.
	Budget int
	// RestartPolicy is that of the pods of checks in which no container ends. Defaults to
	// Always.
	RestartPolicy corev1.RestartPolicy
	// CallsPerList is how many calls a list takes whose units all are on one page. Defaults
	// to 1.
	CallsPerList int
	// Skip are checks, by name, that are left out, each with the reason.
	Skip map[string]string
}

// run is one run of a check.
type run struct {
	*testing.T
	suite   Suite
	world   *World
	cluster *Cluster
	p       nodeutil.Provider
	n       node.NodeProvider
	backend podgroup.Backend
}

// Run makes the checks.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			if reason := s.Skip[check.name]; reason != "" {
				t.Skip(reason)
			}
			synctest.Test(t, func(t *testing.T) {
				r := &run{T: t, suite: s, world: New(time.Second), cluster: NewCluster("home")}
				r.start()
				if check.needs == nil || check.needs(r.backend) {
					check.run(r)
				}
			})
		})
	}
	for name := range s.Skip {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			t.Errorf("Skip names the check %s, which does not exist", name)
		}
	}
}

type check struct {
	name  string
	needs func(podgroup.Backend) bool // whether the backend can do it; nil is always
	run   func(*run)
}

func is[T any](b podgroup.Backend) bool {
	_, ok := b.(T)
	return ok
}

func hasLogs(b podgroup.Backend) bool {
	return is[podgroup.LogReader](b) || is[podgroup.LogStreamer](b)
}

var checks = []check{
	{"a pod's life", nil, life},
	{"an answer to a creation is lost", nil, lostCreation},
	{"a second unit of a pod", is[podgroup.Lister], secondUnit},
	{"the agent starts again", nil, restart},
	{"a pod ends while the agent is away", nil, endsWhileAway},
	{"a unit without a pod", is[podgroup.Lister], orphan},
	{"units of another cluster", is[podgroup.Lister], foreign},
	{"too many calls", nil, throttled},
	{"a list that fails", nil, failedList},
	{"what the service does not have", nil, unsupported},
	{"1000 pods", nil, manyPods},
	{"a file changes", is[podgroup.Updater], changedFile},
	{"a token is renewed", is[podgroup.Updater], renewedToken},
	{"logs", hasLogs, logs1},
	{"an unchanged node costs one list a round", is[podgroup.Lister], quiet},
}

// start starts the agent, again if it runs.
func (r *run) start() {
	r.Helper()
	if r.p != nil {
		Close(r.T, r.p)
	}
	backend, options := r.suite.New(r.T, r.world)
	r.backend = backend
	r.p, r.n = r.cluster.Start(r.T, backend, options)
	if notifier, ok := r.p.(node.PodNotifier); ok {
		notifier.NotifyPods(r.Context(), func(*corev1.Pod) {})
		synctest.Wait()
	}
}

func (r *run) action(a podgroup.Action) string {
	name, ok := r.suite.Actions[a]
	if !ok {
		r.Fatalf("Suite.Actions does not name %s", a)
	}
	return name
}

// create creates a pod, as the controller does.
func (r *run) create(pod *corev1.Pod) {
	r.Helper()
	r.cluster.SetPod(pod)
	if err := r.p.CreatePod(r.Context(), pod); err != nil {
		r.Fatalf("CreatePod: %v", err)
	}
}

// until waits for f to hold, in virtual time.
func (r *run) until(what string, f func() bool) {
	r.Helper()
	for range 600 {
		if f() {
			return
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	r.Fatalf("%s is not so after ten minutes", what)
}

// status returns the status of a pod, or nil if the provider does not have it.
func (r *run) status(pod *corev1.Pod) *corev1.PodStatus {
	r.Helper()
	status, err := r.p.(node.PodUIDLifecycleHandler).GetPodStatusByUID(r.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil && !errdefs.IsNotFound(err) {
		r.Fatalf("GetPodStatusByUID: %v", err)
	}
	return status
}

// pods returns the pods of the provider.
func (r *run) pods() []*corev1.Pod {
	r.Helper()
	pods, err := r.p.GetPods(r.Context())
	if err != nil {
		r.Fatalf("GetPods: %v", err)
	}
	return pods
}

func (r *run) isRunning(pod *corev1.Pod) func() bool {
	return func() bool {
		status := r.status(pod)
		return status != nil && status.Phase == corev1.PodRunning
	}
}

// units are the units of a pod that have not ended.
func (r *run) units(pod *corev1.Pod) []Unit {
	return r.world.Units(func(u *Unit) bool {
		return u.Tags[podgroup.TagPodName] == pod.Name && !u.Over() && u.Phase != podgroup.Stopping
	})
}

func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// pod returns a pod in which no container ends.
func (r *run) pod(name string) *corev1.Pod {
	pod := NewPod(name)
	pod.Spec.RestartPolicy = cmp.Or(r.suite.RestartPolicy, pod.Spec.RestartPolicy)
	return pod
}

func life(r *run) {
	pod := r.pod("life")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if status := r.status(pod); status != nil {
		r.Errorf("before its creation the status of the pod is %v", status)
	}
	r.create(pod)
	if status := r.status(pod); status == nil || status.Phase != corev1.PodPending {
		r.Errorf("right after its creation the status of the pod is %v, and not Pending", status)
	}
	r.until("that the pod runs", r.isRunning(pod))
	status := r.status(pod)
	if status.PodIP == "" || len(status.ContainerStatuses) != 1 || !status.ContainerStatuses[0].Ready || status.ContainerStatuses[0].ContainerID == "" {
		r.Errorf("the status of the running pod is %+v", status)
	}
	r.must(r.world.Exit(pod.Name, "main", 3))
	r.until("that the pod has failed", func() bool { s := r.status(pod); return s != nil && s.Phase == corev1.PodFailed })
	if end := r.status(pod).ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
		r.Errorf("the container ended with 3, and its state is %v", r.status(pod).ContainerStatuses[0].State)
	}
	r.must(r.p.DeletePod(r.Context(), pod))
	r.until("that the pod is gone", func() bool { return r.status(pod) == nil })
	if err := r.p.DeletePod(r.Context(), pod); !errdefs.IsNotFound(err) {
		r.Errorf("the deletion of a pod that is gone returns %v, no error of class NotFound", err)
	}
}

func lostCreation(r *run) {
	pod := r.pod("lost")
	r.cluster.SetPod(pod)
	r.world.Lose(r.action(podgroup.ActionCreate), 1)
	if err := r.p.CreatePod(r.Context(), pod); err == nil || errdefs.IsPermanent(err) {
		r.Fatalf("CreatePod whose answer is lost returns %v, which is not tried again", err)
	}
	for range 2 {
		if r.status(pod) == nil { // as the controller asks
			r.must(r.p.CreatePod(r.Context(), pod))
		}
	}
	r.until("that the pod runs", r.isRunning(pod))
	if units := r.units(pod); len(units) != 1 {
		r.Errorf("the pod has %d units: %v", len(units), units)
	}
}

func secondUnit(r *run) {
	pod := r.pod("twice")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	first := r.units(pod)[0].ID
	time.Sleep(time.Second)
	_, err := r.world.Duplicate(pod.Name)
	r.must(err)
	r.start() // a watch does not see what it missed
	r.until("that the second unit is deleted", func() bool {
		r.pods()
		return len(r.units(pod)) == 1
	})
	if units := r.units(pod); units[0].ID != first {
		r.Errorf("unit %s is left, and not the first one, %s", units[0].ID, first)
	}
}

func restart(r *run) {
	pod := r.pod("again")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	before := r.status(pod)
	r.start()
	if pods := r.pods(); len(pods) != 1 || pods[0].UID != pod.UID || pods[0].Namespace != pod.Namespace || pods[0].Name != pod.Name {
		r.Errorf("after the restart the pods are %v", pods)
	}
	after := r.status(pod)
	if after == nil || after.Phase != corev1.PodRunning || after.ContainerStatuses[0].ContainerID != before.ContainerStatuses[0].ContainerID ||
		after.ContainerStatuses[0].RestartCount != 0 {
		r.Errorf("the status was %+v and is %+v", before, after)
	}
	if n := len(r.units(pod)); n != 1 {
		r.Errorf("the pod has %d units", n)
	}
}

func endsWhileAway(r *run) {
	pod := r.pod("job")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	Close(r.T, r.p)
	r.must(r.world.Exit(pod.Name, "main", 0))
	r.p = nil
	r.start()
	r.until("that the pod has succeeded", func() bool { s := r.status(pod); return s != nil && s.Phase == corev1.PodSucceeded })
	if n := len(r.world.Units(nil)); n != 1 {
		r.Errorf("there are %d units", n)
	}
}

func orphan(r *run) {
	pod := r.pod("orphan")
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	r.cluster.RemovePod(pod)
	r.start()
	pods := r.pods()
	if len(pods) != 1 || pods[0].UID != pod.UID || pods[0].Name != pod.Name || pods[0].Namespace != pod.Namespace {
		r.Fatalf("a unit whose pod is gone is shown as %v", pods)
	}
	r.must(r.p.DeletePod(r.Context(), pods[0]))
	r.until("that nothing is left", func() bool { return len(r.pods()) == 0 })
}

func foreign(r *run) {
	other := r.pod("other")
	r.create(other)
	r.until("that the pod runs", r.isRunning(other))
	r.cluster = NewCluster("another")
	r.start()
	if pods, err := r.p.GetPods(r.Context()); err == nil || !errdefs.IsUnavailable(err) {
		r.Errorf("a node whose names another cluster uses has pods %v, error %v", pods, err)
	}
	ours := r.pod("ours")
	r.cluster.SetPod(ours)
	if err := r.p.CreatePod(r.Context(), ours); err == nil {
		r.Error("a node whose names another cluster uses creates pods")
	}
	if err := r.n.Ping(r.Context()); err == nil {
		r.Error("a node whose names another cluster uses is ready")
	}
	if len(r.units(other)) != 1 {
		r.Error("the unit of the other cluster is gone")
	}
}

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

func unsupported(r *run) {
	pod := r.pod("unsupported")
	host, propagation := true, corev1.MountPropagationBidirectional
	pod.Spec.ShareProcessNamespace, pod.Spec.HostPID = nil, host
	pod.Spec.Volumes = []corev1.Volume{{Name: "exotic", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.7", IQN: "iqn.example"}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "exotic", MountPath: "/exotic", MountPropagation: &propagation}}
	r.cluster.SetPod(pod)
	err := r.p.CreatePod(r.Context(), pod)
	if !errdefs.IsPermanent(err) {
		r.Fatalf("a pod with features that no service has returns %v, no permanent error", err)
	}
	for _, field := range []string{"hostPID", "volumes[exotic].iscsi", "containers[main].volumeMounts[exotic].mountPropagation"} {
		if !strings.Contains(err.Error(), field) {
			r.Errorf("the error does not name %s: %v", field, err)
		}
	}
	if n := r.world.Calls(r.action(podgroup.ActionCreate)); n != 0 {
		r.Errorf("%d creations were sent", n)
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

	calls := Calls{Create: r.world.Calls("")}
	for range 12 {
		time.Sleep(5 * time.Second)
		_, err := r.p.GetPods(r.Context())
		r.must(err)
	}
	calls.Minute = r.world.Calls("") - calls.Create
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
	calls.Delete = r.world.Calls("") - calls.Minute - calls.Create
	r.compare(calls)
}

// Calls are how many calls of a service 1000 pods take: to create them, in a minute in which
// nothing happens, and to delete them. CallsFile has the most.
type Calls struct{ Create, Minute, Delete int }

// CallsFile is the file, in the directory of the package that runs the suite.
const CallsFile = "testdata/calls.json"

// compare fails where there were more calls than the file says, by half: how many lists are
// made is a matter of what runs first and for how long.
func (r *run) compare(calls Calls) {
	text, err := json.Marshal(calls)
	r.must(err)
	var most Calls
	file, err := os.ReadFile(CallsFile)
	if err == nil {
		err = json.Unmarshal(file, &most)
	}
	allowed := func(n int) int { return n + n/2 + 10 }
	if err != nil || calls.Create > allowed(most.Create) || calls.Minute > allowed(most.Minute) || calls.Delete > allowed(most.Delete) {
		r.Errorf("1000 pods took other calls than %s says (%v), which docs/providers.md shows: it was %s", CallsFile, err, text)
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

func (r *run) withVolume(name string, source corev1.VolumeSource) *corev1.Pod {
	pod := r.pod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "files", VolumeSource: source}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files"}}
	return pod
}

func (r *run) file(pod *corev1.Pod, path string) string {
	r.Helper()
	u, err := r.world.OfPod(pod.Name)
	r.must(err)
	return string(u.Files["files"][path].Data)
}

func changedFile(r *run) {
	r.cluster.SetConfigMap("settings", map[string]string{"level": "one"})
	pod := r.withVolume("changed", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}})
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	if got := r.file(pod, "level"); got != "one" {
		r.Fatalf("the file was created with %q", got)
	}
	r.cluster.SetConfigMap("settings", map[string]string{"level": "two"})
	r.until("that the file has changed", func() bool { return r.file(pod, "level") == "two" })
}

func renewedToken(r *run) {
	pod := r.withVolume("token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}})
	pod.Spec.ServiceAccountName = "default"
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	first := r.file(pod, "token")
	if first == "" {
		r.Fatal("the token is not there")
	}
	time.Sleep(55 * time.Minute)
	synctest.Wait()
	r.until("that the token is another one", func() bool { return r.file(pod, "token") != first })
	if n := r.cluster.Tokens(); n != 2 {
		r.Errorf("%d tokens were requested", n)
	}
}

func logs1(r *run) {
	pod := r.pod("log")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	r.must(r.world.Print(pod.Name, "main", "first"))
	read := func(opts api.ContainerLogOpts) (string, error) {
		stream, err := r.p.GetContainerLogs(r.Context(), pod.Namespace, pod.Name, "main", opts)
		if err != nil {
			return "", err
		}
		defer stream.Close()
		text, err := io.ReadAll(stream)
		return string(text), err
	}
	text, err := read(api.ContainerLogOpts{})
	if err != nil || !strings.HasSuffix(text, "first\n") {
		r.Errorf("the log is %q, error %v", text, err)
	}
	if text, err := read(api.ContainerLogOpts{Tail: 1}); err != nil || text != "first\n" {
		r.Errorf("the last line of the log is %q, error %v", text, err)
	}
	if text, err := read(api.ContainerLogOpts{Previous: true}); !errdefs.IsInvalidInput(err) {
		r.Errorf("the log of a run that was not is %q, error %v", text, err)
	}
	var followed string
	var wg sync.WaitGroup
	wg.Go(func() { followed, err = read(api.ContainerLogOpts{Follow: true}) })
	for _, line := range []string{"second", "third"} {
		time.Sleep(5 * time.Second)
		r.must(r.world.Print(pod.Name, "main", line))
	}
	r.must(r.world.Exit(pod.Name, "main", 0))
	wg.Wait() // it ends with the container
	if err != nil || !strings.HasSuffix(followed, "first\nsecond\nthird\n") || strings.Count(followed, "second") != 1 {
		r.Errorf("the log that was followed is %q, error %v", followed, err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	if _, err := r.p.GetContainerLogs(ctx, pod.Namespace, "nobody", "main", api.ContainerLogOpts{}); err == nil {
		r.Error("a pod that does not exist has a log")
	}
	if _, err := r.p.GetContainerLogs(r.Context(), pod.Namespace, pod.Name, "nobody", api.ContainerLogOpts{}); !errdefs.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		r.Errorf("a container that does not exist has a log, error %v", err)
	}
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
