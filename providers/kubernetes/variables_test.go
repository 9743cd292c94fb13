package kubernetes

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What the containers of a remote pod started with stays for their restarts, although the
// objects that it came from are gone, also after a restart of the provider.
func TestVariablesOfObjectsThatAreGoneStay(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			remote := newRemote()
			r := newRig(t, "", remote)
			pod := named("one")
			env := &pod.Spec.Containers[0].Env
			*env = append(*env, corev1.EnvVar{Name: "KEY", Value: "key"}, corev1.EnvVar{Name: "FROM", Value: "from"})
			r.create(pod)
			if restarted {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r = newRig(t, "", remote, pod)
			}
			next := pod.DeepCopy()
			next.Labels["color"] = "red"
			next.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOR", Value: "green"}, ofSecret("gone")}
			next.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
			for range 2 {
				if err := r.UpdatePod(t.Context(), next); err != nil {
					t.Fatal(err)
				}
				got := r.variables(pod)
				if len(got) != 3 || string(got["main.COLOR"]) != "green" || string(got["main.KEY"]) != "key" || string(got["main.FROM"]) != "from" {
					t.Errorf("restarted: %t; the variables are %q", restarted, got)
				}
			}
		})
	}
}

// A source of variables that is gone leaves those of it, and what refers to them, as the
// containers of the remote pod started with them, also if another one has the same names.
func TestVariablesThatReferToWhatIsGoneStay(t *testing.T) {
	plain := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	for what, left := range map[string][]corev1.EnvVar{
		"nothing":            nil,
		"an earlier source":  {plain("PASSWORD", "another")},
		"a Service's values": {plain("KUBERNETES_SERVICE_HOST", "10.96.0.1")},
	} {
		for _, restarted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				remote := newRemote()
				r := newRig(t, "", remote)
				local := named("one")
				local.Spec.Containers[0].Env = []corev1.EnvVar{plain("DSN", "u:$(PASSWORD)@db"), plain("COLOR", "blue")}
				local.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
				r.setHomePod(local)
				pod := local.DeepCopy()
				pod.Spec.Containers[0].Env = []corev1.EnvVar{plain("PASSWORD", "hunter2"), plain("DSN", "u:hunter2@db"), plain("COLOR", "blue")}
				pod.Spec.Containers[0].EnvFrom = nil
				if err := r.CreatePod(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if restarted {
					if err := r.Close(); err != nil {
						t.Fatal(err)
					}
					r = newRig(t, "", remote, local)
				}
				next := local.DeepCopy()
				next.Labels["color"] = "red"
				next.Spec.Containers[0].Env = left
				for _, v := range local.Spec.Containers[0].Env {
					if v.Name == "DSN" && len(left) > 0 && left[0].Name == "PASSWORD" {
						v.Value = "u:another@db"
					}
					next.Spec.Containers[0].Env = append(next.Spec.Containers[0].Env, v)
				}
				for range 2 {
					if err := r.UpdatePod(t.Context(), next); err != nil {
						t.Fatal(err)
					}
					got := r.variables(local)
					if len(got) != 3 || string(got["main.PASSWORD"]) != "hunter2" || string(got["main.DSN"]) != "u:hunter2@db" || string(got["main.COLOR"]) != "blue" {
						t.Errorf("%s is left, restarted: %t; the variables are %q", what, restarted, got)
					}
				}
			})
		}
	}
}

// A remote pod in place of one that was lost has its own address in its variables.
func TestVariablesWithTheAddressOfALostPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := named("one")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
		running(pod)
		pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.7", []corev1.PodIP{{IP: "10.0.0.7"}}
		r := newRig(t, "evicted: restart\n", newRemote(), pod)
		if _, err := r.GetPodByUID(t.Context(), pod.Namespace, pod.Name, pod.UID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		far := r.remotePod(pod)
		if far == nil {
			t.Fatal("there is no remote pod")
		}
		if from := far.Spec.Containers[0].Env[0].ValueFrom; from == nil || from.FieldRef == nil {
			t.Errorf("its variable is of %+v", from)
		}
	})
}
