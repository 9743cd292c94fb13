package translate

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// The remote kubelet expands commands, arguments and values, as the home pod has them, so
// that no value of a Secret is in the remote pod, and each has the value that it has at home.
func TestSecretsAreExpandedInTheRemoteClusterAlone(t *testing.T) {
	ofSecret := func(name string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: name}}}
	}
	ip := corev1.EnvVar{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}
	plain := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	original := corev1.Container{
		Name: "main", Command: []string{"run", "--password=$(PASSWORD)"}, Args: []string{"$(DSN)", "$(ODD)", "$$(POD_IP)", "$(FROM)", "$(NOBODY)", "$(SELF)"},
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}},
		Env: []corev1.EnvVar{
			ofSecret("PASSWORD"), ofSecret("ODD"), plain("EARLY", "$(POD_IP)"), ip, plain("URL", "http://$(POD_IP)"), plain("DSN", "u:$(PASSWORD)@$(URL)"),
			plain("ESCAPED", "$$(POD_IP)"), plain("OWN", "own-$(FROM)"), plain("SELF", "$(SELF):$(POD_IP)"),
		},
	}
	resolved := corev1.Container{
		Name: "main", Command: []string{"run", "--password=hunter2"}, Args: []string{"u:hunter2@http://$(POD_IP)", "odd$(POD_IP)", "$(POD_IP)", "hunter3", "$(NOBODY)", "self:$(POD_IP)"},
		Env: []corev1.EnvVar{
			plain("FROM", "hunter3"), plain("PASSWORD", "hunter2"), plain("ODD", "odd$(POD_IP)"), plain("EARLY", "$(POD_IP)"), ip, plain("URL", "http://$(POD_IP)"),
			plain("DSN", "u:hunter2@http://$(POD_IP)"), plain("ESCAPED", "$(POD_IP)"), plain("OWN", "own-hunter3"), plain("SELF", "self:$(POD_IP)"),
		},
	}
	pod := localPod(func(pod *corev1.Pod) {
		debug := resolved
		debug.Name = "debug"
		pod.Spec.Containers = []corev1.Container{resolved}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(debug)}}
	})
	before := pod.DeepCopy()
	before.Spec.Containers[0] = original
	before.Spec.EphemeralContainers[0].EphemeralContainerCommon = corev1.EphemeralContainerCommon(original)
	before.Spec.EphemeralContainers[0].Name = "debug"
	o := options()
	o.Unresolved = func(*corev1.Pod) *corev1.Pod { return before }
	remote := translated(t, o, pod)
	added, err := o.EphemeralContainers(pod, remote)
	if err != nil || len(added) != 1 {
		t.Fatalf("the ephemeral containers are %+v: %v", added, err)
	}
	values := o.Environment(pod)
	for _, c := range []corev1.Container{remote.Spec.Containers[0], corev1.Container(added[0].EphemeralContainerCommon)} {
		if text := c.String(); strings.Contains(text, "hunter") || strings.Contains(text, "odd") {
			t.Errorf("the values of Secrets are in %s", text)
		}
		env := kubeletEnvironment(c.Env, values)
		var got []string
		for _, text := range slices.Concat(c.Command, c.Args) {
			got = append(got, podenv.Expand(text, env))
		}
		if want := []string{"run", "--password=hunter2", "u:hunter2@http://10.0.0.7", "odd$(POD_IP)", "$(POD_IP)", "hunter3", "$(NOBODY)", "self:10.0.0.7"}; !slices.Equal(got, want) {
			t.Errorf("%s runs %q, want %q", c.Name, got, want)
		}
		got = nil
		for _, v := range env {
			got = append(got, v.Name+"="+v.Value)
		}
		want := []string{
			"FROM=hunter3", "PASSWORD=hunter2", "ODD=odd$(POD_IP)", "EARLY=$(POD_IP)", "POD_IP=10.0.0.7", "URL=http://10.0.0.7",
			"DSN=u:hunter2@http://10.0.0.7", "ESCAPED=$(POD_IP)", "OWN=own-hunter3", "SELF=self:10.0.0.7",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", c.Name, got, want)
		}
	}
}

// kubeletEnvironment returns variables as a kubelet does, of a pod with the IP 10.0.0.7,
// and with the data of the Secret.
func kubeletEnvironment(env []corev1.EnvVar, secret map[string][]byte) (found []corev1.EnvVar) {
	for _, v := range env {
		switch from := v.ValueFrom; {
		case from == nil:
			v.Value = podenv.Expand(v.Value, found)
		case from.SecretKeyRef != nil:
			v.Value = string(secret[from.SecretKeyRef.Key])
		default:
			v.Value = "10.0.0.7"
		}
		found = append(found, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	return found
}
