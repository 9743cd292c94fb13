package eci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

func TestErrorsHaveClasses(t *testing.T) {
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
		{"DiskVolume.NotSupport", 400, errdefs.PermanentClass, 0},
		{"DiskVolume.NotInSameZone", 400, errdefs.PermanentClass, 0},
		{"InstanceTypeNotMatchCpuArch", 400, errdefs.PermanentClass, 0},
		{"Spot.NotMatched", 400, errdefs.RetryAfterClass, time.Minute},
		{"InvalidVSwitchId.NotFound", 404, errdefs.PermanentClass, 0},
		{"IdempotentParameterMismatch", 400, errdefs.ConflictClass, 0},
		{"IncorrectStatus", 400, errdefs.ConflictClass, 0},
		{"InvalidRegionId.NotFound", 404, errdefs.RetryAfterClass, time.Minute},
		{"InvalidTimeStamp.Expired", 400, errdefs.RetryAfterClass, time.Minute},
		{"UserNotActivated", 400, errdefs.RetryAfterClass, time.Minute},
		{"InternalError", 500, errdefs.UnavailableClass, 0},
		{"ServiceUnavailable", 503, errdefs.UnavailableClass, 0},
	} {
		r := newRig(t, 0) // without the silence after throttling
		r.refuse("CreateContainerGroup", 1, c.status, c.code, "because")
		err := r.CreatePod(t.Context(), newPod("a"))
		after, _ := errdefs.RetryAfter(err)
		if errdefs.ClassOf(err) != c.class || after != c.after || !strings.Contains(fmt.Sprint(err), c.code+": because") {
			t.Errorf("%s makes an error of class %s, to be tried after %s: %v", c.code, errdefs.ClassOf(err), after, err)
		}
	}
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	r.refuse("DeleteContainerGroup", 1, http.StatusNotFound, "ContainerGroupNotFound", "gone")
	if err := r.DeletePod(t.Context(), pod); !errdefs.IsNotFound(err) {
		t.Errorf("the deletion of a group that is gone gives %v", err)
	}
}

// If an endpoint, region or proxy does not know a group, it still runs, and must not
// count as gone.
func TestOnlyAGroupThatIsGoneIsNotFound(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	for _, code := range []string{"InvalidRegionId.NotFound", "InvalidAction.NotFound", "InvalidContainerGroupId.NotFound"} {
		r.refuse("DescribeContainerGroupStatus", 1, http.StatusNotFound, code, "no") // after the second DescribeContainerGroups is used
		r.refuse("DescribeContainerGroups", 1, http.StatusNotFound, code, "no")
		if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err == nil || errdefs.IsNotFound(err) {
			t.Errorf("a listing that is refused with %s gives %v", code, err)
		}
	}
	for _, code := range []string{"InvalidRegionId.NotFound", "InvalidAction.NotFound"} {
		r.refuse("DeleteContainerGroup", 1, http.StatusNotFound, code, "no")
		if err := r.DeletePod(t.Context(), pod); err == nil || errdefs.IsNotFound(err) || errdefs.IsPermanent(err) {
			t.Errorf("a deletion that is refused with %s gives %v", code, err)
		}
	}
	r.refuse("DeleteContainerGroup", 1, http.StatusNotFound, "", "")
	if err := r.DeletePod(t.Context(), pod); !errdefs.IsUnavailable(err) {
		t.Errorf("a 404 that is not the API's gives %v", err)
	}
}

// Neither a listing nor a deletion depends on the pod's spec: no pod fails because of
// it, and no group is left over.
func TestListingsAndDeletionsAreNeverRefusedForGood(t *testing.T) {
	r := newRig(t, 0)
	pod := r.create(t, newPod("a"))
	for action, call := range map[string]func() error{
		"DescribeContainerGroupStatus": func() error { return r.UpdatePod(t.Context(), pod) },
		"DescribeContainerGroups": func() error {
			clear(r.backend.groups.known) // as if their statuses had changed
			return r.UpdatePod(t.Context(), pod)
		},
		"DeleteContainerGroup": func() error { return r.DeletePod(t.Context(), pod) },
	} {
		r.refuse(action, 1, http.StatusBadRequest, "InvalidParameter.Tag", "no")
		if err := call(); err == nil || errdefs.IsPermanent(err) {
			t.Errorf("%s, refused, gives %v", action, err)
		}
	}
	r.refuse("UpdateContainerGroup", 1, http.StatusBadRequest, "InvalidParam.NotExistContainer", "no")
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "busybox:2"
	if err := r.UpdatePod(t.Context(), changed); !errdefs.IsPermanent(err) || errdefs.IsNotFound(err) {
		t.Errorf("an update that names what is not there gives %v", err)
	}
}

// The log contains nothing of a pod's secrets, at any level, whether or not calls
// succeed.
func TestTheLogShowsNoSecrets(t *testing.T) {
	var lines bytes.Buffer
	before := log.L
	log.L = vkslog.FromSlog(slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug - 4})))
	t.Cleanup(func() { log.L = before })
	r := newRig(t, 0)
	r.home.SetSecret("keys", "", map[string][]byte{"key": []byte("hunter2-file")})
	pod := newPod("a")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2-env"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
	r.refuse("CreateContainerGroup", 1, 400, "InvalidParameter", "hunter2-env is no good")
	if err := r.CreatePod(t.Context(), pod); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
	r.create(t, pod)
	r.status(t, pod)
	log.G(t.Context()).Info("logged at last") // shows that this is the log that is checked
	if text := lines.String(); strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMi") || !strings.Contains(text, "logged at last") {
		t.Errorf("the log is %s", text)
	}
}

// The SDK puts all parameters into the URL, and the API puts them into its response to
// a signature that does not match.
func TestErrorsShowNoSecrets(t *testing.T) {
	pod := newPod("a")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2 of/the environment"}}
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Port: intstr.FromInt32(80), HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "hunter2-header"}},
	}}}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}}
	failures := map[string]func(r *rig){
		"a signature that does not match": func(r *rig) { r.key("ecitest-access-key", "hunter2-key", "") },
		"an unknown access key":           func(r *rig) { r.key("hunter2-id", "hunter2-key", "") },
		"a server that is away":           func(r *rig) { r.backend.client.domain = "127.0.0.1:1" },
		"an answer that quotes": func(r *rig) {
			r.refuse("CreateContainerGroup", 1, 400, "InvalidParameter", "hunter2-password, hunter2-header and hunter2 of/the environment are no good")
		},
	}
	for what, fail := range failures {
		r := newRig(t, 0)
		r.home.SetSecret("hub", corev1.SecretTypeDockerConfigJson, map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths":{"docker.io":{"username":"me","password":"hunter2-password"}}}`),
		})
		if _, err := r.GetPods(t.Context()); err != nil { // so that the next call is the creation
			t.Fatal(err)
		}
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
	if _, err := r.GetPods(t.Context()); err != nil { // so that the next call is the creation
		t.Fatal(err)
	}
	r.api.Delay("CreateContainerGroup", 1, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.CreatePod(ctx, newPod("a")); !errors.Is(err, context.DeadlineExceeded) || !errdefs.IsUnavailable(err) {
		t.Errorf("the error is %v", err)
	}
}

// One secret may be a part of another, and the API may quote them in its own way.
func TestErrorsShowNoPartsOfSecrets(t *testing.T) {
	for range 10 { // maps have no order
		r := newRig(t, 0)
		pod := newPod("a")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "A", Value: "pass"}, {Name: "B", Value: "password-hunter2"}, {Name: "C", Value: "word-hunter2/ \"and\nmore"},
		}
		r.refuse("CreateContainerGroup", 1, 400, "InvalidParameter", `password-hunter2; word-hunter2%2F+%22and%0Amore; "word-hunter2/ \"and\nmore"`)
		if err := r.CreatePod(t.Context(), pod); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("the error is %v", err)
		}
	}
}
