package podgroup_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// agent is a pod controller with a provider of a World.
type agent struct {
	t       *testing.T
	api     *fakeapi.API
	world   *grouptest.World
	cluster *grouptest.Cluster
	events  *record.FakeRecorder
	backend func(memory) podgroup.Backend
	stop    func()
}

// withAgents runs a test with an agent for each kind of backend, in virtual time.
func withAgents(t *testing.T, test func(t *testing.T, a *agent)) {
	t.Helper()
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &agent{
					t: t, api: fakeapi.New(t), world: grouptest.New(time.Second), cluster: grouptest.NewCluster("home"),
					events: record.NewFakeRecorder(10000), backend: backend,
				}
				if err := a.api.Tracker.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "home"}}); err != nil {
					t.Fatal(err)
				}
				a.start()
				defer func() { a.stop() }()
				test(t, a)
			})
		})
	}
}

// start starts the agent, as if its process had just begun.
func (a *agent) start() {
	a.t.Helper()
	factory := informers.NewSharedInformerFactory(a.api, 0)
	core := factory.Core().V1()
	init := a.cluster.Config()
	init.Pods, init.Client, init.Events = core.Pods().Lister(), a.api, a.events
	p, _, err := podgroup.New(init, a.backend(memory{a.world}), options())
	if err != nil {
		a.t.Fatal(err)
	}
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient: a.api.CoreV1(), PodInformer: core.Pods(), EventRecorder: a.events, Provider: p,
		ConfigMapInformer: core.ConfigMaps(), SecretInformer: core.Secrets(), ServiceInformer: core.Services(),
	})
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	factory.Start(ctx.Done())
	result := make(chan error, 1)
	go func() { result <- controller.Run(ctx, 10) }()
	a.stop = func() {
		cancel()
		if err := <-result; err != nil {
			a.t.Errorf("the controller ended with %v", err)
		}
		factory.Shutdown()
		grouptest.Close(a.t, p)
	}
	<-controller.Ready()
	synctest.Wait()
}

// add adds a pod of the node to the API.
func (a *agent) add(pod *corev1.Pod) {
	a.t.Helper()
	pod.Spec.NodeName = "vk"
	a.api.AddPod(pod)
	synctest.Wait() // a watch that nobody reads overflows
}

// remove requests the deletion of a pod.
func (a *agent) remove(name string, grace ...int64) {
	a.t.Helper()
	a.api.DeletePod(name, grace...)
	synctest.Wait()
}

// phases counts the pods of the API by phase, which end as such or are being deleted.
func (a *agent) phases() map[string]int {
	a.t.Helper()
	list, err := a.api.CoreV1().Pods("default").List(a.t.Context(), metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range list.Items {
		phase := string(list.Items[i].Status.Phase)
		if list.Items[i].DeletionTimestamp != nil {
			phase = "Terminating"
		}
		counts[phase]++
	}
	return counts
}

// wait lets time pass, and then compares the phases of the pods with want.
func (a *agent) wait(d time.Duration, what, want string) {
	a.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := strings.TrimPrefix(fmt.Sprint(a.phases()), "map"); got != want {
		a.t.Errorf("%s the pods are %s, want %s", what, got, want)
	}
}

// created is how many units were made since the beginning.
func (a *agent) created() int {
	a.t.Helper()
	u, err := a.world.Create(grouptest.Spec{Tags: map[string]string{"probe": "yes"}})
	if err != nil {
		a.t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscanf(u.ID, "unit-%d", &n); err != nil {
		a.t.Fatal(err)
	}
	if err := a.world.Delete(u.ID); err != nil {
		a.t.Fatal(err)
	}
	return n - 1
}

// Pods live through a restart of the agent and an outage of the service's list: nothing is
// created twice, nothing ends, and nothing is left.
func TestAgentWith200Pods(t *testing.T) {
	const pods = 200
	name := func(i int) string { return fmt.Sprintf("pod-%d", i) }
	withAgents(t, func(t *testing.T, a *agent) {
		for i := range pods {
			a.add(grouptest.NewPod(name(i)))
		}
		a.wait(30*time.Second, "after half a minute", "[Running:200]")
		a.stop()
		time.Sleep(10 * time.Second)
		a.start()
		a.wait(30*time.Second, "after a restart", "[Running:200]")
		a.stop()
		a.world.Hide(true)
		a.start()
		a.wait(30*time.Second, "after a restart while the service shows nothing", "[Running:200]")
		a.world.Hide(false)
		a.world.Refuse(string(podgroup.ActionList), 8, &grouptest.Refusal{Status: 500, Code: "InternalError"})
		a.wait(2*time.Minute, "after lists that failed", "[Running:200]")
		for i := range pods / 2 {
			a.remove(name(i))
		}
		a.wait(2*time.Minute, "after the deletion of half", "[Running:100]")
		if n := len(a.world.Units(nil)); n != pods/2 {
			t.Errorf("%d units are left of the other half", n)
		}
		for i := range pods / 2 { // those of the same names are others
			pod := grouptest.NewPod(name(i))
			pod.UID += "-2"
			a.add(pod)
		}
		a.wait(30*time.Second, "after other pods of the same names", "[Running:200]")
		a.stop()
		for i := range pods {
			a.remove(name(i), 0) // while nobody looks
		}
		a.start()
		a.wait(5*time.Minute, "after a deletion with force while the agent was away", "[]")
		if n := len(a.world.Units(nil)); n != 0 && !withoutList(a) {
			t.Errorf("%d units are left", n)
		}
		if n := a.created(); n != pods+pods/2 {
			t.Errorf("%d units were made for %d pods", n, pods+pods/2)
		}
	})
}

// withoutList reports whether the backend has no list, so that it cannot find what the
// cluster has forgotten.
func withoutList(a *agent) bool {
	_, gets := a.backend(memory{a.world}).(podgroup.Getter)
	return gets
}

// A unit that has not begun is not given up because the service shows nothing for a while:
// a job may wait for hours.
func TestPendingPodsWhileTheServiceShowsNothing(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		a.world = grouptest.New(time.Hour) // until it runs
		a.stop()
		a.start()
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyAlways} {
			pod := grouptest.NewPod(strings.ToLower(string(policy)))
			pod.Spec.RestartPolicy = policy
			a.add(pod)
		}
		a.wait(10*time.Minute, "after the creation", "[Pending:2]")
		a.world.BreakStreams()
		a.world.Hide(true)
		a.wait(30*time.Second, "while the service shows nothing", "[Pending:2]")
		a.world.Hide(false)
		a.wait(10*time.Minute, "afterwards", "[Pending:2]")
		a.wait(time.Hour, "an hour later", "[Running:2]")
		if n := a.created(); n != 2 {
			t.Errorf("%d units were made for 2 pods", n)
		}
	})
}

// A pod that runs is not lost because the service shows nothing for half a minute.
func TestRunningPodWhileTheServiceShowsNothing(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		a.add(grouptest.NewPod("web"))
		a.wait(10*time.Minute, "after the creation", "[Running:1]")
		a.world.Hide(true)
		a.world.BreakStreams()
		a.wait(30*time.Second, "while the service shows nothing", "[Running:1]")
		a.world.Hide(false)
		a.wait(20*time.Minute, "afterwards", "[Running:1]")
		if n := a.created(); n != 1 {
			t.Errorf("%d units were made for one pod", n)
		}
	})
}

// A pod leaves the API once its unit has stopped, not before, also if it is deleted right
// after its creation.
func TestDeletionRightAfterTheCreation(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		a.world = grouptest.New(20 * time.Second)
		a.stop()
		a.start()
		a.wait(10*time.Second, "before", "[]")
		a.add(grouptest.NewPod("web"))
		time.Sleep(100 * time.Millisecond)
		a.remove("web")
		a.wait(15*time.Second, "while the unit stops", "[Terminating:1]")
		a.wait(30*time.Second, "after that", "[]")
		if n := len(a.world.Units(nil)); n != 0 {
			t.Errorf("%d units are left", n)
		}
	})
}

// A pod that is deleted and created again by the same name at once gets its unit when that
// of the first has stopped.
func TestRecreationByTheSameName(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		a.world = grouptest.New(10 * time.Second)
		a.stop()
		a.start()
		a.add(grouptest.NewPod("web-0"))
		a.wait(time.Minute, "after the creation", "[Running:1]")
		a.remove("web-0", 0)
		second := grouptest.NewPod("web-0")
		second.UID += "-2"
		a.add(second)
		for range 20 {
			time.Sleep(time.Second)
			if units := a.world.Units(func(u *grouptest.Unit) bool { return !u.Over() }); len(units) > 1 && !withoutList(a) {
				t.Fatalf("two pods of a name have units at once: %v", units)
			}
		}
		a.wait(time.Minute, "after the second creation", "[Running:1]")
		if units := a.world.Units(nil); len(units) != 1 {
			t.Errorf("there are %d units", len(units))
		}
	})
}

// An account may be throttled for long. Pods stay as they are, also if the agent starts again
// meanwhile; then all that was asked for happens, once.
func TestThrottledForTenMinutes(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure} {
			pod := grouptest.NewPod("before-" + strings.ToLower(string(policy)))
			pod.Spec.RestartPolicy = policy
			a.add(pod)
		}
		a.wait(10*time.Minute, "after the creation", "[Running:3]")
		a.world.SetQuota("", 0)
		a.world.BreakStreams()
		for i, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyAlways} {
			pod := grouptest.NewPod(fmt.Sprintf("during-%d", i))
			pod.Spec.RestartPolicy = policy
			a.add(pod)
		}
		a.remove("before-always")
		a.wait(5*time.Minute, "while it is throttled", "[Pending:2 Running:2 Terminating:1]")
		before := a.world.Calls("")
		a.stop()
		a.start()
		a.wait(5*time.Minute, "after a restart while it is throttled", "[Pending:2 Running:2 Terminating:1]")
		if n := a.world.Calls("") - before; n > 60 {
			t.Errorf("in five minutes of throttling %d calls were made", n)
		}
		a.world.SetQuota("", 1000)
		a.wait(3*time.Minute, "afterwards", "[Running:4]")
		if n := a.created(); n != 5 {
			t.Errorf("%d units were made for 5 pods", n)
		}
	})
}

// The answer to a creation is lost, the service shows nothing for half a minute, and the agent
// starts again: the pod runs once.
func TestLostCreationThenNothingThenARestart(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		a.wait(10*time.Second, "before", "[]")
		a.world.Lose(string(podgroup.ActionCreate), 2)
		a.world.Hide(true)
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyAlways} {
			pod := grouptest.NewPod(strings.ToLower(string(policy)))
			pod.Spec.RestartPolicy = policy
			a.add(pod)
		}
		time.Sleep(2 * time.Second)
		a.stop()
		a.start()
		time.Sleep(30 * time.Second)
		a.world.Hide(false)
		a.wait(3*time.Minute, "afterwards", "[Running:2]")
		if n := a.created(); n != 2 {
			t.Errorf("%d units were made for 2 pods", n)
		}
	})
}

// Units that stop for long, while the service shows nothing at times and the agent starts
// again, are deleted once, and their pods leave the API when they are gone.
func TestDeletionThatIsSeenLate(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		a.world = grouptest.New(time.Minute) // to start, and to stop
		a.stop()
		a.start()
		a.add(grouptest.NewPod("web"))
		a.wait(5*time.Minute, "after the creation", "[Running:1]")
		a.world.Lose(string(podgroup.ActionDelete), 1)
		a.remove("web")
		a.wait(10*time.Second, "after the deletion", "[Terminating:1]")
		a.stop()
		a.start()
		a.wait(20*time.Second, "after a restart", "[Terminating:1]")
		a.wait(2*time.Minute, "when it has stopped", "[]")
		if n := len(a.world.Units(nil)); n != 0 {
			t.Errorf("%d units are left", n)
		}
	})
}

// A pod that needs what the service does not have fails, with one event that names all of it, and
// nothing is created for it.
func TestRefusedPodIsOneEvent(t *testing.T) {
	withAgents(t, func(t *testing.T, a *agent) {
		pod := grouptest.NewPod("refused")
		pod.Spec.HostPID = true
		pod.Spec.Volumes = []corev1.Volume{{Name: "exotic", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.7", IQN: "iqn.example"}}}}
		a.add(pod)
		a.wait(10*time.Minute, "after ten minutes", "[Failed:1]")
		var refusals []string
		for len(a.events.Events) > 0 {
			if e := <-a.events.Events; strings.Contains(e, "ProviderNotSupported") {
				refusals = append(refusals, e)
			}
		}
		if len(refusals) != 1 || !strings.Contains(refusals[0], "hostPID; volumes[exotic].iscsi") {
			t.Errorf("the events are %q", refusals)
		}
		if n := a.created(); n != 0 {
			t.Errorf("%d units were created", n)
		}
	})
}

// A unit that vanishes while no agent runs may have run: the pod of a Job fails, and is not run again, also
// if the agent starts again before that is certain.
func TestUnitThatVanishesWhileTheAgentIsAway(t *testing.T) {
	for name, restarts := range map[string]int{"one restart": 1, "two restarts": 2} {
		t.Run(name, func(t *testing.T) {
			withAgents(t, func(t *testing.T, a *agent) {
				a.world = grouptest.New(time.Hour) // until it runs
				a.stop()
				a.start()
				pod := grouptest.NewPod("job")
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				a.add(pod)
				a.wait(10*time.Minute, "after the creation", "[Pending:1]")
				a.stop()
				if err := a.world.Remove("job"); err != nil {
					t.Fatal(err)
				}
				a.start()
				for range restarts - 1 {
					a.wait(65*time.Second, "once it is missing", "[Pending:1]")
					a.stop()
					a.start()
				}
				a.wait(5*time.Minute, "when it is gone", "[Failed:1]")
				if status := a.api.Pod("job").Status; !strings.Contains(status.Message, "UnitGone") {
					t.Errorf("the pod has failed for %s: %s", status.Reason, status.Message)
				}
				if n := a.created(); n != 1 {
					t.Errorf("%d units were made for one pod", n)
				}
			})
		})
	}
}
