package eci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/ecitest"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

func TestAPodGoesThroughItsPhases(t *testing.T) {
	r := newRig(t, time.Hour)
	pod := r.create(t, newPod("a"))
	for _, c := range []struct {
		what  string
		phase corev1.PodPhase
		ip    bool
	}{{"scheduled", corev1.PodPending, false}, {"pending", corev1.PodPending, true}, {"running", corev1.PodRunning, true}} {
		status := r.status(t, pod)
		if status.Phase != c.phase || (status.PodIP != "") != c.ip {
			t.Errorf("a pod that is %s is %s, with address %q", c.what, status.Phase, status.PodIP)
		}
		r.api.Advance(time.Hour)
	}
	status := r.status(t, pod)
	c := status.ContainerStatuses[0]
	if !c.Ready || !*c.Started || c.State.Running.StartedAt.IsZero() || !strings.HasPrefix(c.ContainerID, "eci://") || c.ImageID == "" || status.HostIP != "192.0.2.1" {
		t.Errorf("the status of the container is %+v", c)
	}
	if err := r.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := r.GetPod(t.Context(), "default", "a"); err != nil {
		t.Errorf("while its group is terminating, the pod is gone: %v", err)
	}
	r.api.Advance(time.Hour)
	if _, err := r.GetPod(t.Context(), "default", "a"); !errdefs.IsNotFound(err) {
		t.Errorf("of a pod that is gone GetPod returns %v", err)
	}
	if err := r.DeletePod(t.Context(), pod); !errdefs.IsNotFound(err) {
		t.Errorf("of a pod that is gone DeletePod returns %v", err)
	}
}

func TestRestartsAndEnds(t *testing.T) {
	r := newRig(t, 0)
	always := r.create(t, newPod("always"))
	never := newPod("never")
	never.Spec.RestartPolicy = corev1.RestartPolicyNever
	r.create(t, never)
	before := r.status(t, always).ContainerStatuses[0]
	for _, name := range []string{"always", "never"} {
		if err := r.api.Exit(name, "main", 3); err != nil {
			t.Fatal(err)
		}
	}
	after := r.status(t, always).ContainerStatuses[0]
	if after.RestartCount != 1 || after.ContainerID == before.ContainerID || after.LastTerminationState.Terminated == nil ||
		after.LastTerminationState.Terminated.ExitCode != 3 || after.LastTerminationState.Terminated.ContainerID != before.ContainerID {
		t.Errorf("after a restart the container is %+v", after)
	}
	status := r.status(t, never)
	if end := status.ContainerStatuses[0].State.Terminated; status.Phase != corev1.PodFailed || end == nil || end.ExitCode != 3 {
		t.Errorf("after its end the pod is %+v", status)
	}
}

func TestDeadline(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	r.create(t, pod)
	if status := r.status(t, pod); status.Phase != corev1.PodRunning {
		t.Fatalf("the pod is %s", status.Phase)
	}
	r.api.Advance(time.Minute)
	if status := r.status(t, pod); status.Phase != corev1.PodFailed || status.Reason != "DeadlineExceeded" {
		t.Errorf("after its deadline the pod is %s, because of %q", status.Phase, status.Reason)
	}
}

func TestAGroupThatCannotBeScheduledFailsThePod(t *testing.T) {
	r := newRig(t, time.Hour)
	pod := r.create(t, newPod("a"))
	if err := r.api.SetStatus("a", "ScheduleFailed", "NoStock", "there is none left"); err != nil {
		t.Fatal(err)
	}
	status := r.status(t, pod)
	if status.Phase != corev1.PodFailed || status.Reason != "ScheduleFailed" || !strings.Contains(status.Message, "there is none left") {
		t.Errorf("the pod is %s, because of %q: %s", status.Phase, status.Reason, status.Message)
	}
	if event := <-r.events.Events; !strings.Contains(event, "Warning NoStock there is none left") {
		t.Errorf("the event is %q", event)
	}
	r.status(t, pod)
	if len(r.events.Events) > 0 {
		t.Errorf("the same event comes again: %q", <-r.events.Events)
	}
}

// What a container is at may be older than what its group is: one that has ended has
// ended for the pod, too, which else would run for ever.
func TestAGroupThatHasEndedEndsItsContainers(t *testing.T) {
	for status, want := range map[string]struct {
		phase corev1.PodPhase
		code  int32
	}{"Failed": {corev1.PodFailed, 137}, "Succeeded": {corev1.PodSucceeded, 0}, "Expired": {corev1.PodFailed, 137}} {
		r := newRig(t, 0)
		pod := r.create(t, newPod("a"))
		if err := r.api.SetStatus("a", status, "Ended", "it has ended"); err != nil {
			t.Fatal(err)
		}
		got := r.status(t, pod)
		end := got.ContainerStatuses[0].State.Terminated
		if got.Phase != want.phase || got.ContainerStatuses[0].Ready || end == nil || end.ExitCode != want.code || end.StartedAt.IsZero() {
			t.Errorf("with a group that is %s the pod is %s, its container %+v", status, got.Phase, got.ContainerStatuses[0])
		}
	}
}

// An init container that has done what it is for is ready, and has started nothing.
func TestInitContainersThatAreDone(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox:1"}}
	r.create(t, pod)
	got := r.status(t, pod)
	if first := got.InitContainerStatuses[0]; !first.Ready || *first.Started || first.State.Terminated == nil || got.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s, its init container %+v", got.Phase, first)
	}
}

func TestOneListingAnswersForAllPods(t *testing.T) {
	r := newRig(t, 0, func(c *Config) { c.CacheFor = time.Hour })
	const count = 45
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, r.create(t, newPod(fmt.Sprintf("pod-%02d", i))))
	}
	before := r.api.Calls("DescribeContainerGroups")
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
	if pages := r.api.Calls("DescribeContainerGroups") - before; pages != 3 {
		t.Errorf("%d pods of which all is asked take %d calls, want the 3 pages of one listing", count, pages)
	}
}

func TestCreationHappensOnce(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 {
		t.Errorf("after two creations there are %d pods: %v", len(pods), err)
	}
	again := newPod("a")
	again.UID = "another"
	r.create(t, again)
	if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 2 {
		t.Errorf("with another pod of the name there are %d pods: %v", len(pods), err)
	}
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "busybox:2"
	if err := r.CreatePod(t.Context(), changed); !errdefs.IsConflict(err) {
		t.Errorf("a creation that clashes with one before gives %v, want a conflict", err)
	}
}

// A listing may be older than a creation: the pod must not seem to be lost.
func TestANewPodIsThereBeforeAListingHasIt(t *testing.T) {
	r := newRig(t, time.Hour, func(c *Config) { c.CacheFor = time.Hour })
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

// What the API no longer has comes from the group alone, after a restart too.
func TestOrphansAreShown(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	if err := r.pods.Delete(pod); err != nil {
		t.Fatal(err)
	}
	config := testConfig(r.api.URL)
	restarted := r.newProvider(t, config)
	pods, err := restarted.GetPods(t.Context())
	if err != nil || len(pods) != 1 {
		t.Fatalf("there are %d pods: %v", len(pods), err)
	}
	got := pods[0]
	if got.Name != "a" || got.Namespace != "default" || got.UID != pod.UID || !got.CreationTimestamp.Equal(&pod.CreationTimestamp) || got.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %+v", got)
	}
}

func TestVolumesAndCredentialsComeFromObjects(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
	}}}}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}, {Name: "does-not-exist"}}
	err := r.CreatePod(t.Context(), pod)
	if err == nil || errdefs.IsPermanent(err) || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), `MountVolume.SetUp failed for volume "conf" : configmap "settings" not found`) {
		t.Errorf("without the ConfigMap the error is %v", err)
	}
	if calls := r.api.Calls("CreateContainerGroup"); calls != 0 {
		t.Errorf("a pod that lacks something is created with %d calls", calls)
	}
	r.objects.configMaps["settings"] = &corev1.ConfigMap{Data: map[string]string{"colour": "blue"}}
	r.objects.secrets["hub"] = &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
		corev1.DockerConfigJsonKey: []byte(`{"auths":{"docker.io":{"username":"me","password":"pass"}}}`),
	}}
	r.create(t, pod)
	params, err := r.api.Params("a")
	if err != nil {
		t.Fatal(err)
	}
	if params["Volume.1.ConfigFileVolume.ConfigFileToPath.1.Path"] != "colour" || params["ImageRegistryCredential.1.Password"] != "pass" {
		t.Errorf("the group was made with %v", params)
	}
}

func TestRefusedPodsCauseNoCall(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
	if err := r.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) {
		t.Errorf("the error is %v", err)
	}
	if calls := r.api.Calls("CreateContainerGroup"); calls != 0 {
		t.Errorf("there were %d calls", calls)
	}
}

func TestUpdates(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a")).DeepCopy()
	pod.Labels = map[string]string{"colour": "blue"}
	if err := r.UpdatePod(t.Context(), pod); err != nil || r.api.Calls("UpdateContainerGroup") != 0 {
		t.Errorf("a label is changed with %d calls, and %v", r.api.Calls("UpdateContainerGroup"), err)
	}
	pod.Spec.Containers[0].Image = "docker.io/library/busybox:1" // which is the same
	if err := r.UpdatePod(t.Context(), pod); err != nil || r.api.Calls("UpdateContainerGroup") != 0 {
		t.Errorf("another name of its image restarts a container with %d calls, and %v", r.api.Calls("UpdateContainerGroup"), err)
	}
	pod.Spec.Containers[0].Image = "busybox:2"
	if err := r.UpdatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if c := r.status(t, pod).ContainerStatuses[0]; c.Image != "busybox:2" || c.RestartCount != 1 {
		t.Errorf("after the change of its image the container is %+v", c)
	}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	if err := r.UpdatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.HasPrefix(err.Error(), "ProviderNotSupported") {
		t.Errorf("an ephemeral container gives %v", err)
	}
}

// A pull secret that has changed since the pod was made is what its next image is
// pulled with.
func TestANewImageComesWithNewCredentials(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}}
	for i, password := range []string{"first", "second"} {
		r.objects.secrets["hub"] = &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
			corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"docker.io":{"username":"me","password":%q}}}`, password),
		}}
		if i == 0 {
			r.create(t, pod)
			continue
		}
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].Image = "busybox:2"
		if err := r.UpdatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	params, err := r.api.Params("a")
	if err != nil || params["ImageRegistryCredential.1.Password"] != "second" {
		t.Errorf("the new image is pulled with %v: %v", params, err)
	}
}

func TestStats(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	r.create(t, newPod("b"))
	summary, err := r.GetStatsSummary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(summary.Pods) != 2 || *summary.Pods[0].CPU.UsageNanoCores != 10_000_000 || len(summary.Pods[0].Containers) != 1 ||
		*summary.Node.CPU.UsageNanoCores != 20_000_000 || summary.Node.NodeName != "vk" {
		t.Errorf("the figures are %+v", summary)
	}
	if network := summary.Pods[0].Network; network == nil || network.Name != "eth0" || *network.RxBytes != 3<<20 || len(network.Interfaces) != 2 {
		t.Errorf("the network's figures are %+v", network)
	}
	if _, err := r.GetStatsSummary(t.Context()); err != nil || r.api.Calls("DescribeContainerGroupMetric") != 2 {
		t.Errorf("figures that are good are asked for again: %d calls, %v", r.api.Calls("DescribeContainerGroupMetric"), err)
	}
}

// A group of which there are no figures yet does not have those of all asked for
// each time; one that is being updated has some.
func TestFiguresAreAskedForOnceInAWhile(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	r.create(t, newPod("b"))
	if err := r.api.SetStatus("b", "Updating", "Updating", "it is updated"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		summary, err := r.GetStatsSummary(t.Context())
		if err != nil || len(summary.Pods) != 1 { // the fake has some of groups that are Running
			t.Fatalf("there are figures of %d pods: %v", len(summary.Pods), err)
		}
	}
	if calls := r.api.Calls("DescribeContainerGroupMetric"); calls != 2 {
		t.Errorf("the figures of two groups take %d calls", calls)
	}
}

// sameAnswer answers all calls, and counts them.
type sameAnswer struct {
	text  string
	calls int
}

func (a *sameAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	a.calls++
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.text))}, nil
}

// A half of the pods must not be taken for all, nor the API be called for ever.
func TestAListingThatDoesNotEndIsNone(t *testing.T) {
	r := newRig(t, 0)
	answer := &sameAnswer{text: `{"NextToken": "same", "ContainerGroups": []}`}
	r.client.transport = answer
	if _, err := r.GetPods(t.Context()); !errdefs.IsUnavailable(err) || answer.calls != 2 {
		t.Errorf("after %d calls the error is %v", answer.calls, err)
	}
}

// While the API says that too much is asked, nothing is.
func TestListingsRespectThrottling(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, newPod("a"))
		r.api.Fail("DescribeContainerGroups", 1, http.StatusTooManyRequests, "TooFast", "wait")
		for range 3 {
			_, err := r.GetPods(t.Context())
			if after, _ := errdefs.RetryAfter(err); after != 10*time.Second {
				t.Errorf("a listing that is throttled gives %v", err)
			}
			if err := r.Ping(t.Context()); err != nil {
				t.Errorf("throttled, the node is not well: %v", err)
			}
		}
		if calls := r.api.Calls("DescribeContainerGroups"); calls != 1 {
			t.Errorf("%d listings were asked for, want 1", calls)
		}
		time.Sleep(10 * time.Second)
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("after that there are %d pods: %v", len(pods), err)
		}
	})
}

func TestNodeIsWellWhileItIsOnlyThrottled(t *testing.T) {
	r := newRig(t, 0)
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	r.api.Fail("DescribeContainerGroups", 1, http.StatusForbidden, "Forbidden.RAM", "no")
	if err := r.Ping(t.Context()); err == nil {
		t.Error("without rights the node is well")
	}
	r.api.Fail("DescribeContainerGroups", 1, http.StatusBadRequest, "Throttling.User", "too many")
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("throttled, the node is not well: %v", err)
	}
	if cpu := r.node.Status.Capacity[corev1.ResourceCPU]; cpu.Value() != 1000 || r.node.Labels[corev1.LabelTopologyRegion] != ecitest.Region {
		t.Errorf("the node is %+v", r.node)
	}
}

func TestErrorsHaveClasses(t *testing.T) {
	r := newRig(t, 0)
	for _, c := range []struct {
		code   string
		status int
		class  errdefs.Class
		after  time.Duration
	}{
		{"Throttling.User", 400, errdefs.RetryAfterClass, 10 * time.Second},
		{"Throttling", 503, errdefs.RetryAfterClass, 10 * time.Second},
		{"QuotaExceeded", 400, errdefs.RetryAfterClass, time.Minute},
		{"NoStock", 400, errdefs.RetryAfterClass, time.Minute},
		{"OperationDenied.NoStock", 403, errdefs.RetryAfterClass, time.Minute},
		{"InvalidAccountStatus.NotEnoughBalance", 400, errdefs.RetryAfterClass, time.Minute},
		{"InvalidVSwitchId.IpNotEnough", 400, errdefs.RetryAfterClass, time.Minute},
		{"InvalidAccountStatus.SecurityRisk", 403, errdefs.RetryAfterClass, time.Minute},
		{"InvalidPaymentMethod.Missing", 403, errdefs.RetryAfterClass, time.Minute},
		{"InvalidOperation.EipInUse", 400, errdefs.RetryAfterClass, time.Minute},
		{"Forbidden.RAM", 403, errdefs.RetryAfterClass, time.Minute},
		{"InvalidParameter.CPU.Memory", 400, errdefs.PermanentClass, 0},
		{"InvalidVSwitchId.NotFound", 404, errdefs.PermanentClass, 0},
		{"IdempotentParameterMismatch", 400, errdefs.ConflictClass, 0},
		{"IncorrectStatus", 400, errdefs.ConflictClass, 0},
		{"InvalidRegionId.NotFound", 404, errdefs.RetryAfterClass, time.Minute},
		{"InvalidTimeStamp.Expired", 400, errdefs.RetryAfterClass, time.Minute},
		{"UserNotActivated", 400, errdefs.RetryAfterClass, time.Minute},
		{"InternalError", 500, errdefs.UnavailableClass, 0},
		{"ServiceUnavailable", 503, errdefs.UnavailableClass, 0},
	} {
		r.api.Fail("CreateContainerGroup", 1, c.status, c.code, "because")
		err := r.CreatePod(t.Context(), newPod("a"))
		after, _ := errdefs.RetryAfter(err)
		if errdefs.ClassOf(err) != c.class || after != c.after || !strings.Contains(fmt.Sprint(err), c.code+": because") {
			t.Errorf("%s makes an error of class %s, to be tried after %s: %v", c.code, errdefs.ClassOf(err), after, err)
		}
	}
	pod := r.create(t, newPod("a"))
	r.api.Fail("DeleteContainerGroup", 1, http.StatusNotFound, "ContainerGroupNotFound", "gone")
	if err := r.DeletePod(t.Context(), pod); !errdefs.IsNotFound(err) {
		t.Errorf("the deletion of a group that is gone gives %v", err)
	}
}

// A wrong endpoint or region, or a proxy, does not know the groups: they run all
// the same, and must not be taken for gone.
func TestOnlyAGroupThatIsGoneIsNotFound(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	for _, code := range []string{"InvalidRegionId.NotFound", "InvalidAction.NotFound", "InvalidContainerGroupId.NotFound"} {
		r.api.Fail("DescribeContainerGroups", 1, http.StatusNotFound, code, "no")
		if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err == nil || errdefs.IsNotFound(err) {
			t.Errorf("a listing that is refused with %s gives %v", code, err)
		}
	}
	for _, code := range []string{"InvalidRegionId.NotFound", "InvalidAction.NotFound"} {
		r.api.Fail("DeleteContainerGroup", 1, http.StatusNotFound, code, "no")
		if err := r.DeletePod(t.Context(), pod); err == nil || errdefs.IsNotFound(err) || errdefs.IsPermanent(err) {
			t.Errorf("a deletion that is refused with %s gives %v", code, err)
		}
	}
	r.api.Fail("DeleteContainerGroup", 1, http.StatusNotFound, "", "")
	if err := r.DeletePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
		t.Errorf("a 404 that is not the API's gives %v", err)
	}
}

// Neither a listing nor a deletion says anything of a pod's spec: no pod is to blame,
// and no group is left over.
func TestListingsAndDeletionsAreNeverRefusedForGood(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	for action, call := range map[string]func() error{
		"DescribeContainerGroups": func() error { return r.UpdatePod(t.Context(), pod) },
		"DeleteContainerGroup":    func() error { return r.DeletePod(t.Context(), pod) },
	} {
		r.api.Fail(action, 1, http.StatusBadRequest, "InvalidParameter.Tag", "no")
		if err := call(); err == nil || errdefs.IsPermanent(err) {
			t.Errorf("%s, refused, gives %v", action, err)
		}
	}
	r.api.Fail("UpdateContainerGroup", 1, http.StatusBadRequest, "InvalidParam.NotExistContainer", "no")
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "busybox:2"
	if err := r.UpdatePod(t.Context(), changed); !errdefs.IsPermanent(err) || errdefs.IsNotFound(err) {
		t.Errorf("an update that names what is not there gives %v", err)
	}
}

// The creation was taken, but nobody heard: neither a further try nor another
// process makes a second group.
func TestACreationWhoseAnswerWasLostIsNotRepeated(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	if err := r.pods.Add(pod); err != nil {
		t.Fatal(err)
	}
	r.api.Lose("CreateContainerGroup", 1)
	if err := r.CreatePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
		t.Fatalf("a creation without an answer gives %v", err)
	}
	config := testConfig(r.api.URL)
	again := r.newProvider(t, config)
	if err := again.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pods, err := again.GetPods(t.Context())
	if err != nil || len(pods) != 1 {
		t.Errorf("there are %d groups (%v), want one", len(pods), err)
	}
}

// Nothing of a pod's secrets is in the log, at any level, be calls taken or not.
func TestTheLogShowsNoSecrets(t *testing.T) {
	var lines bytes.Buffer
	before := log.L
	log.L = vkslog.FromSlog(slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug - 4})))
	t.Cleanup(func() { log.L = before })
	r := newRig(t, 0)
	r.objects.secrets["keys"] = &corev1.Secret{Data: map[string][]byte{"key": []byte("hunter2-file")}}
	pod := newPod("a")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2-env"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
	r.api.Fail("CreateContainerGroup", 1, 400, "InvalidParameter", "hunter2-env is no good")
	if err := r.CreatePod(t.Context(), pod); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
	r.create(t, pod)
	r.status(t, pod)
	log.G(t.Context()).Info("said at last") // the log is the one that is looked at
	if text := lines.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMi") || !strings.Contains(text, "said at last") {
		t.Errorf("the log is %s", text)
	}
}

// The SDK puts all parameters into the URL, and the API into the answer to a
// signature that does not match.
func TestErrorsShowNoSecrets(t *testing.T) {
	pod := newPod("a")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2 of/the environment"}}
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Port: intstr.FromInt32(80), HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "hunter2-header"}},
	}}}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}}
	failures := map[string]func(r *rig){
		"a signature that does not match": func(r *rig) { r.Provider.client.secretKey = "hunter2-key" },
		"an unknown access key":           func(r *rig) { r.Provider.client.accessKey = "hunter2-id" },
		"a server that is away":           func(r *rig) { r.Provider.client.domain = "127.0.0.1:1" },
		"an answer that quotes": func(r *rig) {
			r.api.Fail("CreateContainerGroup", 1, 400, "InvalidParameter", "hunter2-password, hunter2-header and hunter2 of/the environment are no good")
		},
	}
	for what, fail := range failures {
		r := newRig(t, 0)
		r.objects.secrets["hub"] = &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths":{"docker.io":{"username":"me","password":"hunter2-password"}}}`),
		}}
		fail(r)
		err := r.CreatePod(t.Context(), pod)
		if err == nil {
			t.Errorf("%s: there is no error", what)
		}
		for ; err != nil; err = errors.Unwrap(err) {
			if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, "hunter2") {
				t.Errorf("%s: the error shows a secret: %s", what, text)
			}
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	r := newRig(t, 0)
	r.api.Delay("CreateContainerGroup", 1, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.CreatePod(ctx, newPod("a")); !errors.Is(err, context.DeadlineExceeded) || !errdefs.IsUnavailable(err) {
		t.Errorf("the error is %v", err)
	}
}
