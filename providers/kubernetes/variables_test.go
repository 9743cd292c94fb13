package kubernetes

import (
	"testing"
	"testing/synctest"

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
