package eci

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/eci/ecitest"
)

// An update that is not incremental would take commands, environment, mounts and probes from the
// containers that it names.
func TestANewImageKeepsTheRestOfTheContainer(t *testing.T) {
	r := newRig(t, 0)
	pod := newPod("a")
	c := &pod.Spec.Containers[0]
	c.Command, c.Env = []string{"sleep"}, []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "busybox:1", Command: []string{"cat"}})
	r.create(t, pod)
	before, err := r.api.Params("a")
	if err != nil {
		t.Fatal(err)
	}
	pod = pod.DeepCopy()
	pod.Spec.Containers[0].Image = "busybox:2"
	if err := r.UpdatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	after, err := r.api.Params("a")
	if err != nil || after["Container.1.Image"] != "busybox:2" {
		t.Errorf("the image is %q: %v", after["Container.1.Image"], err)
	}
	after["Container.1.Image"] = "busybox:1"
	expect(t, "the rest", after, before)
	if status := r.status(t, pod); status.ContainerStatuses[0].RestartCount != 1 || status.ContainerStatuses[1].RestartCount != 0 {
		t.Errorf("the containers are %+v", status.ContainerStatuses)
	}
}

// An update may fail the containers of a pod that is not to be restarted.
func TestPodsThatRunOnceAreNotUpdated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.paint("blue")
		pod := podWithSettings("a")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.create(t, pod)
		r.paint("red")
		r.goOn(t, time.Hour)
		pod = pod.DeepCopy()
		pod.Spec.Containers[0].Image = "busybox:2"
		if err := r.UpdatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "restartPolicy Never") {
			t.Errorf("another image gives %v", err)
		}
		r.expectUpdates(t, "for a pod that runs once", 0)
	})
}

// Unless the configuration says so, no files of pods that run are updated.
func TestFilesAreUpdatedByChoice(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		config := r.cfg
		config.UpdateFiles = false
		r.Provider = r.newProvider(t, config)
		r.paint("blue")
		r.create(t, podWithSettings("a"))
		r.create(t, podWithToken("b"))
		r.paint("red")
		r.goOn(t, 3*time.Hour)
		r.expectUpdates(t, "by default", 0)
		if events := r.stale(); len(events) > 0 {
			t.Errorf("the events are %q", events)
		}
	})
}

// A group takes no updates while it is updated: the next change waits.
func TestChangesThatFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newVirtualRig(t, 10*time.Second)
		r.paint("blue")
		r.create(t, podWithSettings("a"))
		r.goOn(t, time.Minute)
		r.paint("red")
		synctest.Wait()
		r.paint("green")
		r.goOn(t, 5*time.Minute)
		if got := r.file(t, "a", "conf", "colour"); got != "green" {
			t.Errorf("the file has %q", got)
		}
		if events := r.stale(); len(events) > 0 {
			t.Errorf("that a group is updated, which passes, is the event %q", events)
		}
	})
}

// A pod that is to be gone at once is not stopped with the grace period of its spec.
func TestForcedDeletion(t *testing.T) {
	r := newRig(t, time.Hour)
	pod := r.create(t, newPod("a"))
	pod.DeletionGracePeriodSeconds = ptr.To[int64](0)
	if err := r.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); !errdefs.IsNotFound(err) {
		t.Errorf("the pod is there: %v", err)
	}
}

// A pod may ask to fail if it cannot be created; but not because the answer was lost, or because there were too
// many calls, or because it is not known whether it was.
func TestPodsThatFailIfTheyCannotBeCreated(t *testing.T) {
	for code, permanent := range map[string]bool{"NoStock": true, "QuotaExceeded.Vcpu": true, "UnknownCode": true, "Throttling.User": false, "IdempotentParameterMismatch": false, "": false, "InternalError": false, "502": false, "429": false} {
		for _, asks := range []bool{true, false} {
			r := newRig(t, 0)
			pod := newPod("a")
			if asks {
				pod.Annotations = map[string]string{annotationFailOnError: "true"}
			}
			switch code {
			case "":
				r.api.Lose("CreateContainerGroup", 1)
			case "InternalError":
				r.refuse("CreateContainerGroup", 1, 500, code, "no")
			case "502", "429": // from something before the API, without a code
				status, _ := strconv.Atoi(code)
				r.refuse("CreateContainerGroup", 1, status, "", "no")
			default:
				r.refuse("CreateContainerGroup", 1, 400, code, "no")
			}
			if err := r.CreatePod(t.Context(), pod); err == nil || errdefs.IsPermanent(err) != (permanent && asks) {
				t.Errorf("%q gives %v, for a pod that asks for it: %t", code, err, asks)
			}
		}
	}
}

// Temporary credentials have a token.
func TestTemporaryCredentials(t *testing.T) {
	r := newRig(t, 0, func(c *Config) { c.SecurityToken = ecitest.SecurityToken })
	r.create(t, newPod("a"))
	r.key(ecitest.AccessKey, ecitest.SecretKey, "hunter2-token")
	if _, err := r.GetPods(t.Context()); err == nil || !strings.Contains(err.Error(), "InvalidSecurityToken") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("with another token the error is %v", err)
	}
}
