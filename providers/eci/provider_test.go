package eci

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
)

func TestAPodGoesThroughItsPhases(t *testing.T) {
	r := newRig(t, time.Hour)
	pod := r.create(t, newPod("a"))
	for _, c := range []struct {
		what  string
		phase corev1.PodPhase
		ip    bool
	}{{"scheduled", corev1.PodPending, false}, {"running", corev1.PodRunning, true}} {
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
	if event := <-r.home.Events.Events; !strings.Contains(event, "Warning NoStock there is none left") {
		t.Errorf("the event is %q", event)
	}
	r.status(t, pod)
	if len(r.home.Events.Events) > 0 {
		t.Errorf("the same event comes again: %q", <-r.home.Events.Events)
	}
}

// The state of a container may be older than that of its group: if the group has ended,
// its containers have, or the pod would run for ever.
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

// An init container that has completed is ready, and not started.
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

// A pod that the API server no longer has is made from the group alone, after a restart
// too.
func TestOrphansAreShown(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	r.home.RemovePod(pod)
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
	r.home.SetConfigMap("settings", map[string]string{"colour": "blue"})
	r.home.SetSecret("hub", corev1.SecretTypeDockerConfigJson, map[string][]byte{
		corev1.DockerConfigJsonKey: []byte(`{"auths":{"docker.io":{"username":"me","password":"pass"}}}`),
	})
	r.create(t, pod)
	params, err := r.api.Params("a")
	if err != nil {
		t.Fatal(err)
	}
	if params["Volume.1.ConfigFileVolume.ConfigFileToPath.1.Path"] != "colour" || params["ImageRegistryCredential.1.Password"] != "pass" {
		t.Errorf("the group was made with %v", params)
	}
}

// An optional object must be known not to exist before a group is created without it.
func TestOptionalObjectThatCannotBeRead(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Optional: ptr.To(true),
	}}}}
	for _, failure := range []error{
		apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("no relationship found")),
		apierrors.NewTooManyRequests("busy", 1), apierrors.NewInternalError(errors.New("no leader")), errors.New("connection refused"),
	} {
		r.home.FailObject("settings", failure)
		if err := r.CreatePod(t.Context(), pod); !errors.Is(err, failure) || errdefs.IsPermanent(err) {
			t.Errorf("got %v, want %v", err, failure)
		}
	}
	if calls := r.api.Calls("CreateContainerGroup"); calls != 0 {
		t.Errorf("a pod of which is not known what it lacks is created with %d calls", calls)
	}
	r.home.FailObject("settings", nil)
	r.create(t, pod)
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
	pod.Spec.Containers[0].Image = "docker.io/library/busybox:1" // which is the same image
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

// A pull secret that has changed since the pod was created is used to pull its next
// image.
func TestANewImageComesWithNewCredentials(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}}
	for i, password := range []string{"first", "second"} {
		r.home.SetSecret("hub", corev1.SecretTypeDockerConfigJson, map[string][]byte{
			corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"docker.io":{"username":"me","password":%q}}}`, password),
		})
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

func TestNodeIsWellWhileItIsOnlyThrottled(t *testing.T) {
	r := newRig(t, 0)
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	r.refuse("DescribeContainerGroups", 1, http.StatusForbidden, "Forbidden.RAM", "no")
	if err := r.Ping(t.Context()); err == nil {
		t.Error("without rights the node is well")
	}
	r.refuse("DescribeContainerGroups", 1, http.StatusBadRequest, "Throttling.User", "too many")
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("throttled, the node is not well: %v", err)
	}
	if cpu := r.home.Node.Status.Capacity[corev1.ResourceCPU]; cpu.Value() != 1000 || r.home.Node.Labels[corev1.LabelTopologyRegion] != ecitest.Region {
		t.Errorf("the node is %+v", r.home.Node)
	}
}

// If the response to a creation is lost, neither a retry nor another process creates a
// second group.
func TestACreationWhoseAnswerWasLostIsNotRepeated(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	r.home.SetPod(pod)
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
