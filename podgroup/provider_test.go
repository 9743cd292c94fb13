package podgroup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// inBubble runs a test with a provider of a backend of a World, in virtual time.
func inBubble(t *testing.T, change func(*podgroup.Options), test func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, c, o := grouptest.New(time.Second), grouptest.NewCluster("home"), options()
		if change != nil {
			change(&o)
		}
		p, _ := c.Start(t, listing{memory{w}}, o)
		test(t, w, c, p)
	})
}

func create(t *testing.T, c *grouptest.Cluster, p nodeutil.Provider, pod *corev1.Pod) {
	t.Helper()
	c.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func statusOf(t *testing.T, p nodeutil.Provider, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	status, err := p.(node.PodUIDLifecycleHandler).GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func events(c *grouptest.Cluster) (all []string) {
	for {
		select {
		case e := <-c.Events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// sightless is a listing that cannot read the states of its units.
type sightless struct{ listing }

func (b sightless) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	found, err := b.listing.List(ctx, filter, page)
	for i := range found.Units {
		u := &found.Units[i]
		*u = podgroup.Unit{ID: u.ID, Tags: u.Tags, Created: u.Created, Unknown: true, Containers: []podgroup.Container{{Name: u.Containers[0].Name}}}
	}
	return found, err
}

// A unit whose state cannot be read, as after a start of the agent, is there, and the status of
// its pod stays as it is.
func TestUnitOfUnknownState(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		pod := grouptest.NewPod("web")
		create(t, c, p, pod)
		time.Sleep(time.Minute)
		pod = pod.DeepCopy()
		pod.Status = *statusOf(t, p, pod)
		c.SetPod(pod)
		p, _ = c.Start(t, sightless{listing{memory{w}}}, options())
		if got := statusOf(t, p, pod); !equality.Semantic.DeepEqual(*got, pod.Status) || got.Phase != corev1.PodRunning {
			t.Errorf("the status is %+v, and was %+v", got, pod.Status)
		}
		log, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(log); err != nil || string(text) != "container main started\n" {
			t.Errorf("the log is %q, %v", text, err)
		}
		if err := p.DeletePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if n := len(w.Units(nil)); n != 0 {
			t.Errorf("%d units are left", n)
		}
	})
}

// A service forgets units that have ended. A pod that was created and has ended while no
// agent ran must not run again, if it is one that is to run once.
func TestUnitThatIsGoneIsNotRunAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		job, server := grouptest.NewPod("job"), grouptest.NewPod("server")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		for _, pod := range []*corev1.Pod{job, server} {
			create(t, c, p, pod)
			pod.Status = *statusOf(t, p, pod) // as the controller writes it: Pending
			if pod.Status.Phase != corev1.PodPending {
				t.Fatalf("the phase is %s", pod.Status.Phase)
			}
		}
		time.Sleep(10 * time.Minute)
		for _, pod := range []*corev1.Pod{job, server} {
			if err := w.Remove(pod.Name); err != nil {
				t.Fatal(err)
			}
		}
		for _, pod := range []*corev1.Pod{job, server} { // the service may show nothing for a while
			if err := p.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) && errdefs.ClassOf(err) != errdefs.RetryAfterClass || errdefs.IsPermanent(err) {
				t.Errorf("the creation of pod %s, whose unit is missing, returns %v", pod.Name, err)
			}
		}
		time.Sleep(time.Minute)
		if err := p.CreatePod(t.Context(), job); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "unit-000001") {
			t.Errorf("the creation of a Job's pod that may have run returns %v", err)
		}
		if err := p.CreatePod(t.Context(), server); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if got := statusOf(t, p, server); got.Phase != corev1.PodRunning {
			t.Errorf("a pod that is always to run is %s after its unit was lost", got.Phase)
		}
		if n := len(w.Units(nil)); n != 1 {
			t.Errorf("there are %d units", n)
		}
	})
}

func TestIdentityOfLongNames(t *testing.T) {
	long := strings.Repeat("a234567890.", 23)[:253]
	inBubble(t, func(o *podgroup.Options) { o.Identity.MaxTag = 63 }, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		pod := grouptest.NewPod(long)
		pod.UID = "c2d29c42-7d42-4c4b-9c64-b12e4c3b8a11"
		create(t, c, p, pod)
		for _, u := range w.Units(nil) {
			for key, value := range u.Tags {
				if len(value) > 63 {
					t.Errorf("tag %s has %d characters", key, len(value))
				}
			}
		}
		c.RemovePod(pod)
		time.Sleep(10 * time.Second)
		pods, err := p.GetPods(t.Context())
		if err != nil || len(pods) != 1 || pods[0].Name != long {
			t.Errorf("the pods are %v, error %v", pods, err)
		}
	})
}

// A list without units is believed only if the service confirms that a pod's unit is gone.
func TestEmptyListThatIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, confirming{listing{memory{w}}}, options())
		pod := grouptest.NewPod("web")
		create(t, c, p, pod)
		time.Sleep(10 * time.Second)
		pod.Status = *statusOf(t, p, pod)
		c.SetPod(pod)
		time.Sleep(10 * time.Second)
		w.Hide(true)
		if pods, err := p.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("the list of a service that hides its units has %d pods, error %v", len(pods), err)
		}
		w.Hide(false)
		if err := w.Remove("web"); err != nil {
			t.Fatal(err)
		}
		if pods, err := p.GetPods(t.Context()); err != nil || len(pods) != 0 {
			t.Errorf("the list of a service without units has %d pods, error %v", len(pods), err)
		}
	})
}

// In another place the node has no units. Of several pods one that was created in this place
// suffices: what users write on their pods does not stop those of others.
func TestAnotherPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, o := grouptest.New(time.Second), grouptest.NewCluster("home"), options()
		o.Place = "here"
		p, _ := c.Start(t, listing{memory{w}}, o)
		for _, name := range []string{"a", "b"} {
			pod := grouptest.NewPod(name)
			create(t, c, p, pod)
			time.Sleep(10 * time.Second)
			pod = c.Pod(pod.Namespace, pod.Name).DeepCopy()
			if got := pod.Annotations[podgroup.AnnotationPlace]; got != o.Place {
				t.Fatalf("the place of pod %s is %q", pod.Name, got)
			}
			pod.Status = *statusOf(t, p, pod)
			c.SetPod(pod)
		}
		w.Hide(true)
		annotate := func(name, place string) {
			pod := c.Pod("default", name).DeepCopy()
			pod.Annotations[podgroup.AnnotationPlace] = place
			c.SetPod(pod)
		}
		annotate("a", "there")
		annotate("b", "") // not written yet
		grouptest.CheckUnfound(t, p, `pod default/a was created in "there"`)
		annotate("b", o.Place)
		if pods, err := p.GetPods(t.Context()); err != nil || len(pods) != 0 {
			t.Errorf("a list that a pod of this place confirms has %d pods, error %v", len(pods), err)
		}
	})
}

type confirming struct{ listing }

func (c confirming) ConfirmEmpty(_ context.Context, unitID string, _ *corev1.Pod) error {
	if _, err := c.w.Unit(unitID); err == nil {
		return errors.New("the unit exists")
	}
	return nil
}

// half lists units without IDs.
type half struct{ listing }

func (h half) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	found, err := h.listing.List(ctx, filter, page)
	for i := range found.Units {
		found.Units[i].ID = ""
	}
	return found, err
}

func TestUnitWithoutID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, half{listing{memory{w}}}, options())
		create(t, c, p, grouptest.NewPod("a"))
		time.Sleep(time.Minute)
		grouptest.CheckUnfound(t, p, "a unit without an ID")
	})
}

// With events a node lists at its start, and creations and statuses cost no list.
func TestWatchNeedsNoLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, watching{listing{memory{w}}}, options())
		notified := notifications(t, p)
		pod := grouptest.NewPod("web")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		create(t, c, p, pod)
		time.Sleep(10 * time.Second)
		if err := w.Exit("web", "main", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		statusOf(t, p, pod)
		if n := w.Calls(string(podgroup.ActionList)); n != 1 {
			t.Errorf("there were %d lists", n)
		}
		if got := notified("web"); !slices.Equal(got, []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodFailed}) {
			t.Errorf("the notified phases are %v", got)
		}
		w.BreakStreams()
		time.Sleep(time.Minute)
		if n := w.Calls(string(podgroup.ActionList)); n != 2 {
			t.Errorf("there were %d lists after the stream broke off", n)
		}
	})
}

// What is deleted is notified of as ended; what vanishes is for the controller to find lost.
func TestWatchOfUnitsThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		p, _ := c.Start(t, watching{listing{memory{w}}}, options())
		notified := notifications(t, p)
		last := func(pod string) corev1.PodPhase { return notified(pod)[len(notified(pod))-1] }
		deleted, vanished := grouptest.NewPod("deleted"), grouptest.NewPod("vanished")
		for _, pod := range []*corev1.Pod{deleted, vanished} {
			create(t, c, p, pod)
		}
		time.Sleep(10 * time.Second)
		if err := p.DeletePod(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
		if err := w.Remove("vanished"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if last("deleted") != corev1.PodFailed || last("vanished") != corev1.PodRunning {
			t.Errorf("the last notifications are %v and %v", notified("deleted"), notified("vanished"))
		}
		for _, pod := range []*corev1.Pod{deleted, vanished} {
			if _, err := p.GetPod(t.Context(), pod.Namespace, pod.Name); !errdefs.IsNotFound(err) {
				t.Errorf("pod %s: %v", pod.Name, err)
			}
		}
	})
}

func TestSizes(t *testing.T) {
	sizes := podgroup.Sizes{{CPU: "0.5", Memory: []string{"1Gi", "2Gi"}}, {CPU: "1", Memory: []string{"2Gi", "8Gi"}}}
	inBubble(t, func(o *podgroup.Options) { o.Sizes = sizes }, func(t *testing.T, _ *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		small, large := grouptest.NewPod("small"), grouptest.NewPod("large")
		small.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("3Gi")}
		create(t, c, p, small)
		if got := events(c); len(got) != 1 || !strings.Contains(got[0], "1 CPUs and 8Gi") {
			t.Errorf("the events are %q", got)
		}
		large.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		c.SetPod(large)
		if err := p.CreatePod(t.Context(), large); !errdefs.IsPermanent(err) {
			t.Errorf("a pod that is larger than what is sold returns %v", err)
		}
	})
}

func TestIgnoredFields(t *testing.T) {
	ignored := func(o *podgroup.Options) { o.Features.Ignored = []string{"containers.ports.hostPort"} }
	inBubble(t, ignored, func(t *testing.T, _ *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		pod := grouptest.NewPod("hardened")
		pod.Spec.Hostname, pod.Spec.Subdomain = "hardened", "set" // as a StatefulSet has it
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		yes, no, group := true, false, int64(7)
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, RunAsNonRoot: &yes, Privileged: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox", TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError}}
		create(t, c, p, pod)
		got := events(c)
		if len(got) != 1 {
			t.Fatalf("the events are %q", got)
		}
		for _, field := range []string{
			"securityContext.fsGroup", "securityContext.seccompProfile", "containers[main].securityContext.allowPrivilegeEscalation",
			"containers[main].securityContext.runAsNonRoot", "containers[main].securityContext.capabilities.drop",
			"containers[main].ports.hostPort", "hostname", "initContainers[setup].terminationMessagePolicy",
		} {
			if !strings.Contains(got[0], field) {
				t.Errorf("the event does not name %s: %s", field, got[0])
			}
		}
		if strings.Contains(got[0], "privileged;") || strings.Contains(got[0], "subdomain") {
			t.Errorf("the event names what the pod does not want: %s", got[0])
		}
	})
}

// The API server adds a volume with a token to each pod. A service without such volumes runs
// pods all the same, without a token; it refuses volumes that somebody asked for.
func TestTokensOfServicesWithoutFiles(t *testing.T) {
	plain := func(o *podgroup.Options) { o.Features.Fields = []string{"restartPolicy"} }
	inBubble(t, plain, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		source := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}}
		pod := grouptest.NewPod("plain")
		pod.Spec.ServiceAccountName = "default"
		pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x7k2p", VolumeSource: source}}
		create(t, c, p, pod)
		if got := events(c); len(got) != 1 || !strings.Contains(got[0], "volumes[kube-api-access-x7k2p].projected") {
			t.Errorf("the events are %q", got)
		}
		time.Sleep(time.Hour)
		if n := c.Tokens(); n != 0 {
			t.Errorf("%d tokens were requested, which nobody gets", n)
		}
		other := grouptest.NewPod("other")
		other.Spec.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: source}}
		c.SetPod(other)
		if err := p.CreatePod(t.Context(), other); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "volumes[mine].projected") {
			t.Errorf("a pod with a projected volume of its own returns %v", err)
		}
	})
}

// Figures of many units take several calls, within the budget. One that fails costs the
// figures of its units alone; the node's CPU time does not fall.
func TestUsageIsMeasuredInBatches(t *testing.T) {
	batches := func(o *podgroup.Options) { o.UsageBatch = 2 }
	inBubble(t, batches, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		for _, name := range []string{"a", "b", "c", "d"} {
			create(t, c, p, grouptest.NewPod(name))
		}
		var used uint64
		for failed, want := range []int{4, 2, -1} {
			time.Sleep(time.Minute)
			before := w.Calls(string(podgroup.ActionUsage))
			w.Refuse(string(podgroup.ActionUsage), failed, &grouptest.Refusal{Status: 500, Code: "InternalError"})
			summary, err := p.GetStatsSummary(t.Context())
			if calls := w.Calls(string(podgroup.ActionUsage)) - before; calls != 2 {
				t.Errorf("the figures of four units take %d calls, want 2", calls)
			}
			if want < 0 {
				if err == nil {
					t.Error("there are no figures, and no error")
				}
			} else if err != nil || len(summary.Pods) != want {
				t.Errorf("with %d calls that fail there are the figures of %v, want %d: %v", failed, summary, want, err)
			} else if now := *summary.Node.CPU.UsageCoreNanoSeconds; now == 0 || now < used {
				t.Errorf("with %d calls that fail the node has used %d ns, and before %d", failed, now, used)
			} else {
				used = now
			}
		}
		if err := w.Remove("d"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if summary, err := p.GetStatsSummary(t.Context()); err != nil || len(summary.Pods) != 3 || *summary.Node.CPU.UsageCoreNanoSeconds < used {
			t.Errorf("when a pod is gone, the figures are %+v, %v: the node had used %d ns before", summary, err, used)
		}
	})
}

// Clients of figures wait for ten seconds.
func TestUsageOfManyUnitsOfASlowService(t *testing.T) {
	inBubble(t, func(o *podgroup.Options) { o.UsageBatch = 1 }, func(t *testing.T, w *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		const units = 30
		for i := range units {
			create(t, c, p, grouptest.NewPod(fmt.Sprint("pod-", i)))
		}
		time.Sleep(time.Minute)
		w.Delay(string(podgroup.ActionUsage), units, 2*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if summary, err := p.GetStatsSummary(ctx); err != nil || len(summary.Pods) != units {
			t.Errorf("within ten seconds there are the figures of %v, error %v", summary, err)
		}
	})
}

func TestFields(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string // in the error; empty if the pod is created
	}{
		"what a cluster adds to all pods": {change: func(pod *corev1.Pod) {
			yes := true
			pod.Spec.SchedulerName, pod.Spec.DNSPolicy, pod.Spec.EnableServiceLinks = "default-scheduler", corev1.DNSClusterFirst, &yes
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			pod.Spec.Containers[0].TerminationMessagePath, pod.Spec.Containers[0].TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
			pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
		}},
		"a volume without any field": {change: func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}},
		"init containers": {change: func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox", Command: []string{"true"}}}
		}},
		"a sidecar": {change: func(pod *corev1.Pod) {
			always := corev1.ContainerRestartPolicyAlways
			pod.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "busybox", RestartPolicy: &always}}
		}, want: "initContainers[proxy].restartPolicy Always"},
		"a probe": {change: func(pod *corev1.Pod) {
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		}},
		"a probe of a kind that is left out": {change: func(pod *corev1.Pod) {
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}}
		}, want: "containers[main].livenessProbe.grpc"},
		"several things": {change: func(pod *corev1.Pod) {
			yes := true
			pod.Spec.HostNetwork, pod.Spec.Containers[0].SecurityContext = true, &corev1.SecurityContext{Privileged: &yes}
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		}, want: "containers[main].ports.hostPort 8080; containers[main].securityContext.privileged; hostNetwork"},
		"a DaemonSet": {change: func(pod *corev1.Pod) {
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: &yes}}
		}, want: "pods of a DaemonSet, such as agent"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, _ *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
				pod := grouptest.NewPod("pod")
				test.change(pod)
				c.SetPod(pod)
				err := p.CreatePod(t.Context(), pod)
				switch {
				case test.want == "" && err != nil:
					t.Error(err)
				case test.want != "" && (!errdefs.IsPermanent(err) || !strings.Contains(err.Error(), test.want)):
					t.Errorf("the error is %v, without %q", err, test.want)
				}
			})
		})
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	o := options()
	o.Service, o.Identity.Cluster, o.Identity.MaxTag = "", "", 10
	o.Features.Fields = []string{"containers.livenesProbe", "-volumes.emptyDir.medium", "restartPolicy=Never"}
	o.Sizes = podgroup.Sizes{{CPU: "one", Memory: []string{"1Gi"}}}
	_, _, err := podgroup.New(grouptest.NewCluster("home").Config(), listing{memory{grouptest.New(0)}}, o)
	if !errdefs.IsInvalidInput(err) {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{"Service is missing", "Identity.Cluster", "MaxTag is 10", `"containers.livenesProbe"`, `"one"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// A service without a list cannot find out that it is another place.
func TestPlaceOfAGetter(t *testing.T) {
	o := options()
	o.Place = "here"
	if _, _, err := podgroup.New(grouptest.NewCluster("home").Config(), getting{memory{grouptest.New(0)}}, o); !errdefs.IsInvalidInput(err) {
		t.Errorf("the error is %v", err)
	}
}

// Without a DNS of the service's a pod has what it sets itself.
func TestRequestHasTheDNSConfigOfThePod(t *testing.T) {
	var got *podgroup.Request
	synctest.Test(t, func(t *testing.T) {
		w, c, o := grouptest.New(time.Second), grouptest.NewCluster("home"), options()
		o.Features.Fields = append(o.Features.Fields, "dnsConfig")
		p, _ := c.Start(t, recording{listing{memory{w}}, &got}, o)
		pod := grouptest.NewPod("web")
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}}
		create(t, c, p, pod)
	})
	if !slices.Equal(got.DNS.Nameservers, []string{"192.0.2.53"}) {
		t.Errorf("the resolver is %v", got.DNS)
	}
}

func TestRequestHasWhatThePodNeeds(t *testing.T) {
	var got *podgroup.Request
	synctest.Test(t, func(t *testing.T) {
		w, c, o := grouptest.New(time.Second), grouptest.NewCluster("home"), options()
		o.Features.Fields = append(o.Features.Fields, "volumes.persistentVolumeClaim", "dnsConfig")
		o.DNS = &podspec.DNS{ClusterServers: []string{"10.96.0.10"}, ClusterDomain: "cluster.local"}
		p, _ := c.Start(t, recording{listing{memory{w}}, &got}, o)
		c.SetSecret("login", corev1.SecretTypeDockerConfigJson, map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example.com":{"username":"me","password":"secret"}}}`),
		})
		for _, object := range []metav1.Object{
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "disk-1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
		} {
			if _, err := c.Client().CoreV1().PersistentVolumeClaims("default").Create(t.Context(), object.(*corev1.PersistentVolumeClaim), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		pod := grouptest.NewPod("web")
		pod.Spec.DNSPolicy = corev1.DNSClusterFirst
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "login"}, {Name: "missing"}}
		pod.Spec.Containers[0].Image = "registry.example.com/web:1"
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		c.SetPod(pod)
		if err := p.CreatePod(t.Context(), pod); err == nil || errdefs.IsPermanent(err) {
			t.Fatalf("a claim whose volume cannot be read returns %v", err)
		}
		if _, err := c.Client().CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-1"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		create(t, c, p, pod)
	})
	if len(got.Logins) != 1 || got.Logins[0] != (podgroup.Login{Registry: "registry.example.com", Username: "me", Password: "secret"}) {
		t.Errorf("the logins are %v", got.Logins)
	}
	if got.Claims["data"] == nil || got.Claims["data"].Name != "disk-1" {
		t.Errorf("the claims are %v", got.Claims)
	}
	if !slices.Equal(got.DNS.Nameservers, []string{"10.96.0.10"}) || len(got.DNS.Searches) != 3 {
		t.Errorf("the DNS is %v", got.DNS)
	}
	if !strings.HasPrefix(got.Name, "default-web-") || len(got.Name) > 63 {
		t.Errorf("the name is %q", got.Name)
	}
}

// recording keeps the last request.
type recording struct {
	listing
	last **podgroup.Request
}

func (r recording) Create(ctx context.Context, request *podgroup.Request) (podgroup.Unit, error) {
	*r.last = request
	return r.listing.Create(ctx, request)
}

// reporting is a listing that says something of the node.
type reporting struct {
	listing
	failure *error
}

func (r reporting) Report(context.Context, *corev1.Node) error { return *r.failure }

// A node whose units cannot be listed is not ready, even if the service says all is well.
func TestPingOfAReporterThatLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
		var failure error
		_, n := c.Start(t, reporting{listing{memory{w}}, &failure}, options())
		if err := n.Ping(t.Context()); err != nil {
			t.Errorf("Ping: %v", err)
		}
		time.Sleep(time.Minute)
		w.Refuse(actions[podgroup.ActionList], 1, &grouptest.Refusal{Status: 500, Code: "InternalError"})
		if err := n.Ping(t.Context()); err == nil {
			t.Error("the node is healthy though its units cannot be listed")
		}
		failure = errors.New("the machines are off")
		if err := n.Ping(t.Context()); err == nil {
			t.Error("the node is healthy though its backend reports a failure")
		}
	})
}

// kubectl logs, which names no UID, gets the log of a container that has just started.
func TestCallsByNameSeeNewStates(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *grouptest.World, c *grouptest.Cluster, p nodeutil.Provider) {
		pod := grouptest.NewPod("new")
		if _, err := p.GetPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		create(t, c, p, pod)
		time.Sleep(10 * time.Second)
		if status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name); err != nil || status.Phase != corev1.PodRunning {
			t.Errorf("the status of a pod that runs is %v, error %v", status, err)
		}
		if _, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{}); err != nil {
			t.Errorf("a container that runs has no log: %v", err)
		}
	})
}

// silent has no logs and no figures, and runs no commands.
type silent struct{ l listing }

func (s silent) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	return s.l.Create(ctx, r)
}

func (s silent) Delete(ctx context.Context, u *podgroup.Unit, grace time.Duration) error {
	return s.l.Delete(ctx, u, grace)
}

func (s silent) List(ctx context.Context, filter map[string]string, page string) (podgroup.Page, error) {
	return s.l.List(ctx, filter, page)
}

// A provider can do what its backend can, and no more.
func TestCapabilitiesAreTheBackends(t *testing.T) {
	w, c := grouptest.New(time.Second), grouptest.NewCluster("home")
	for _, test := range []struct {
		backend podgroup.Backend
		want    string
	}{
		{silent{listing{memory{w}}}, "pods-by-uid node-status"},
		{listing{memory{w}}, "pods-by-uid node-status logs stats metrics"},
		{watching{listing{memory{w}}}, "notify pods-by-uid node-status logs stats metrics"},
	} {
		p, _ := c.Start(t, test.backend, options())
		for _, provider := range []nodeutil.Provider{p, podgroup.Sample(test.backend)} {
			if got := strings.Join(nodeutil.Capabilities(provider), " "); got != test.want {
				t.Errorf("%T can do %q, want %q", test.backend, got, test.want)
			}
		}
	}
}

// Without DNS in the options the request has what the pod itself sets.
func TestDNSOfThePodAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, o := grouptest.New(time.Second), grouptest.NewCluster("home"), options()
		o.DNS = nil
		o.Features.Fields = append(o.Features.Fields, "dnsConfig")
		var got *podgroup.Request
		p, _ := c.Start(t, recording{listing{memory{w}}, &got}, o)
		pod := grouptest.NewPod("web")
		pod.Spec.DNSPolicy = corev1.DNSClusterFirst
		create(t, c, p, pod)
		if len(got.DNS.Nameservers)+len(got.DNS.Searches)+len(got.DNS.Options) != 0 {
			t.Errorf("of a pod that sets nothing it is %+v", got.DNS)
		}
		pod = grouptest.NewPod("own")
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = corev1.DNSClusterFirst, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.7"}, Searches: []string{"example"}}
		create(t, c, p, pod)
		if !slices.Equal(got.DNS.Nameservers, []string{"192.0.2.7"}) || !slices.Equal(got.DNS.Searches, []string{"example"}) {
			t.Errorf("it is %+v", got.DNS)
		}
		if all := events(c); len(all) != 0 {
			t.Errorf("there are events: %q", all)
		}
	})
}
