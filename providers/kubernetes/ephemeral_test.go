package kubernetes

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// ofSecret is a variable from the key "name" of a Secret.
func ofSecret(secret string) corev1.EnvVar {
	return corev1.EnvVar{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "name",
	}}}
}

func ephemeral(name string, env ...corev1.EnvVar) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "debug:1", Env: env}}
}

// variables returns the data of the remote Secret with the variables of a home pod.
func (r *rig) variables(pod *corev1.Pod) map[string][]byte {
	r.t.Helper()
	secret, err := r.remote.CoreV1().Secrets(r.remotePod(pod).Namespace).Get(r.t.Context(), r.translate.EnvironmentName(pod), metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return secret.Data
}

// A container that still refers to an object of the home cluster does not come to the
// remote cluster, where its name may be another object's. Others, and labels, do.
func TestReferencesToHomeStayAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		pod := named("one")
		r.create(pod)
		from := ephemeral("from")
		from.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}}}}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("key", ofSecret("gone")), from, ephemeral("fit")}
		if err := r.UpdatePod(t.Context(), pod); !errors.Is(err, translate.ErrUnresolved) {
			t.Errorf("the update says %v", err)
		}
		if added := r.remotePod(pod).Spec.EphemeralContainers; len(added) != 1 || added[0].Name != "fit" {
			t.Errorf("the remote pod has %+v", added)
		}
		for what, change := range map[string]func(*corev1.Container){
			"a key":    func(c *corev1.Container) { c.Env = []corev1.EnvVar{ofSecret("gone")} },
			"a source": func(c *corev1.Container) { c.EnvFrom = from.EnvFrom },
		} {
			other := named("other")
			change(&other.Spec.Containers[0])
			if err := r.CreatePod(t.Context(), other); !errors.Is(err, translate.ErrUnresolved) || r.remotePod(other) != nil {
				t.Errorf("a pod with %s: its creation says %v", what, err)
			}
		}
	})
}

// Ephemeral containers that a pod has before it is created start, with their variables.
func TestEphemeralContainersOfANewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", newRemote())
		var accepted atomic.Bool
		fakeapi.React(&r.remote.Fake, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return !accepted.Load() && action.GetSubresource() == "ephemeralcontainers", nil, apierrors.NewForbidden(corev1.Resource("pods"), "one", errors.New("not yet"))
		})
		local := named("one")
		local.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug", ofSecret("keys"))}
		r.setHomePod(local)
		resolved, err := r.resolveEnvironment(t.Context(), local, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.CreatePod(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		if far := r.remotePod(local); len(far.Spec.EphemeralContainers) > 0 || len(r.events.Events) == 0 {
			t.Errorf("while it is refused the remote pod has %+v; there are %d events", far.Spec.EphemeralContainers, len(r.events.Events))
		}
		accepted.Store(true)
		time.Sleep(time.Minute)
		far := r.remotePod(local)
		if len(far.Spec.EphemeralContainers) != 1 {
			t.Fatalf("the remote pod has %+v", far.Spec.EphemeralContainers)
		}
		at := far.Spec.EphemeralContainers[0].Env[0].ValueFrom.SecretKeyRef
		if at.Name != r.translate.EnvironmentName(local) || string(r.variables(local)[at.Key]) != "keys" {
			t.Errorf("its variable is of %+v", at)
		}
		r.requests()
		time.Sleep(time.Minute)
		r.wantRequests("later")
	})
}

// Ephemeral containers of a new pod that could not be added before a restart are added
// then, although what its other containers started with is gone.
func TestEphemeralContainersAreAddedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		var accepted atomic.Bool
		fakeapi.React(&remote.Fake, "patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return !accepted.Load() && action.GetSubresource() == "ephemeralcontainers", nil, apierrors.NewForbidden(corev1.Resource("pods"), "one", errors.New("not yet"))
		})
		r := newRig(t, "", remote)
		pod := named("one")
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug", ofSecret("keys"))}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SETTING", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}, Key: "setting",
		}}}}
		r.setHomePod(pod)
		resolved := pod.DeepCopy()
		resolved.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SETTING", Value: "as it was"}}
		resolved.Spec.EphemeralContainers[0].Env = []corev1.EnvVar{{Name: "KEY", Value: "keys"}}
		if err := r.CreatePod(t.Context(), resolved); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		accepted.Store(true)
		r = newRig(t, "", remote, pod)
		time.Sleep(time.Minute)
		if far := r.remotePod(pod); len(far.Spec.EphemeralContainers) != 1 {
			t.Fatalf("the remote pod has %+v", far.Spec.EphemeralContainers)
		}
		if got := r.variables(pod); len(got) != 2 || string(got["main.SETTING"]) != "as it was" || string(got["debug.KEY"]) != "keys" {
			t.Errorf("the variables are %q", got)
		}
		r.requests()
		time.Sleep(time.Minute)
		r.wantRequests("later")
	})
}

// An ephemeral container is not started a second time in another remote pod, also if that
// replaces one that was lost while no provider was running.
func TestEphemeralContainersOfAPodThatIsReplaced(t *testing.T) {
	for _, lost := range []int{-1, 0, 1} { // the remote pod that is lost unseen
		synctest.Test(t, func(t *testing.T) {
			remote := newRemote()
			r := newRig(t, "evicted: restart\n", remote)
			pod := named("one")
			r.create(pod)
			pod = pod.DeepCopy()
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("one-off")}
			r.setHomePod(pod)
			if err := r.UpdatePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			r.change(r.remotePod(pod), func(far *corev1.Pod) {
				running(far)
				far.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "one-off", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
			})
			for attempt := range 2 {
				if attempt == lost {
					pod = pod.DeepCopy()
					pod.Status = r.last()
					if err := r.Close(); err != nil {
						t.Fatal(err)
					}
				}
				r.remove(r.remotePod(pod))
				if attempt == lost {
					r = newRig(t, "evicted: restart\n", remote, pod)
					if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				r.change(r.remotePod(pod), running)
			}
			pod = pod.DeepCopy()
			pod.Labels["color"] = "red"
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, ephemeral("next"))
			r.setHomePod(pod)
			if err := r.UpdatePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			far := r.remotePod(pod)
			if names := far.Spec.EphemeralContainers; len(names) != 1 || names[0].Name != "next" || far.Labels["color"] != "red" {
				t.Errorf("lost: %d; the remote pod has %+v", lost, names)
			}
		})
	}
}

// In a remote pod that an earlier version has made in place of another no ephemeral container is
// started: which of them ran is not known.
func TestEphemeralContainersOfAnEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newRemote()
		r := newRig(t, "evicted: restart\n", remote)
		pod := named("one")
		r.create(pod)
		r.change(r.remotePod(pod), func(far *corev1.Pod) {
			running(far)
			far.Annotations[translate.AnnotationRestarts] = `{"main":1}`
		})
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("one-off")}
		r = newRig(t, "evicted: restart\n", remote, pod)
		time.Sleep(time.Minute)
		if far := r.remotePod(pod); len(far.Spec.EphemeralContainers) != 0 {
			t.Errorf("the remote pod has %+v", far.Spec.EphemeralContainers)
		}
	})
}
