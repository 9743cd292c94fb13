package podengine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// nothing is a cluster without objects.
type nothing struct{}

func (nothing) ConfigMap(string, string) (*corev1.ConfigMap, error) { return nil, errors.New("no") }
func (nothing) Secret(string, string) (*corev1.Secret, error)       { return nil, errors.New("no") }
func (nothing) Services(string) ([]*corev1.Service, error)          { return nil, nil }

// Volumes have what is sent. After a restart they stay as they are until it comes again.
func TestVolumesThatAreSent(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.cfg.Sent, r.cfg.Tokens = true, nil }, func(r *rig) {
		pod := makePod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
		}, first(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}} }))
		send := func(token string) map[string]volume.Files {
			return map[string]volume.Files{"v": {"token": {Data: []byte(token), Mode: 0o600}}}
		}
		want := func(token string) {
			t.Helper()
			got, err := os.ReadFile(filepath.Join(r.podDir(pod.UID), "volumes/kubernetes.io~projected/v/token"))
			if string(got) != token {
				t.Errorf("the token is %q (%v), want %q", got, err, token)
			}
		}
		if err := r.UpdateVolumes(r.ctx, "ns", "p", pod.UID, send("0")); !errdefs.IsOnlyNotFound(err) {
			t.Errorf("got %v", err)
		}
		if err := r.CreatePodWithVolumes(r.ctx, pod, send("1")); err != nil {
			t.Fatal(err)
		}
		r.after(time.Second) // a second write at the same time would wait for another name
		r.wantState(pod, "Running a=ready")
		want("1")
		if err := r.UpdateVolumes(r.ctx, "ns", "p", pod.UID, send("2")); err != nil {
			t.Error(err)
		}
		r.after(0)
		want("2")
		r.restart(time.Minute)
		r.after(time.Hour)
		r.wantState(pod, "Running a=ready")
		want("2")
		if err := r.UpdateVolumes(r.ctx, "ns", "p", pod.UID, send("3")); err != nil {
			t.Error(err)
		}
		r.after(0)
		want("3")
		r.delete(pod, 0)
		r.after(time.Minute)
		if r.sent.pods[pod.UID] != nil {
			t.Error("what is in the volumes of a pod that has gone is remembered")
		}
	})
}

// A pod that is not taken leaves nothing.
func TestSentPodThatIsRefused(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.cfg.Sent = true }, func(r *rig) {
		pod := makePod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}}
		})
		if err := r.CreatePodWithVolumes(r.ctx, pod, nil); !errdefs.IsPermanent(err) || len(r.sent.pods) != 0 {
			t.Errorf("got %v, and %d pods are remembered", err, len(r.sent.pods))
		}
	})
	inBubble(t, func(r *rig) {
		if err := r.CreatePodWithVolumes(r.ctx, makePod("a"), nil); err == nil || r.TakesVolumes() {
			t.Errorf("an engine that reads volumes itself was sent some: %v", err)
		}
	})
}

// What was resolved elsewhere is not resolved a second time, but for what depends on the pod's
// address.
func TestEscapeResolved(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Status.PodIP = "10.0.0.7"
	pod.Spec.Containers = []corev1.Container{{
		Name:    "main",
		Command: []string{"echo", "$(A) $(IP) $$ ${HOME}"},
		Env: []corev1.EnvVar{
			{Name: "A", Value: "a"},
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "B", Value: "$(A) and $(IP), $5 and $$"},
		},
	}}
	escapeResolved(&pod.Spec.Containers[0])
	if _, err := podenv.Resolve(pod, nothing{}, podenv.Options{}); err != nil {
		t.Fatal(err)
	}
	got := pod.Spec.Containers[0]
	if want := "$(A) and 10.0.0.7, $5 and $$"; got.Env[2].Value != want || got.Env[1].Value != "10.0.0.7" {
		t.Errorf("the environment is %+v, want %q", got.Env, want)
	}
	if want := "$(A) 10.0.0.7 $$ ${HOME}"; got.Command[1] != want {
		t.Errorf("the command is %q, want %q", got.Command[1], want)
	}
}

// Image pull secrets come with the volumes, and are replaced like them.
func TestPullSecretsThatAreSent(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.cfg.Sent = true }, func(r *rig) {
		pod := makePod("a", func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "other"}, {Name: "registry"}}
		})
		send := func(config string) map[string]volume.Files {
			return map[string]volume.Files{"imagePullSecrets/registry": {corev1.DockerConfigJsonKey: {Data: []byte(config)}}}
		}
		if err := r.CreatePodWithVolumes(r.ctx, pod, send("1")); err != nil {
			t.Fatal(err)
		}
		for _, config := range []string{"1", "2"} {
			secrets := r.worker(pod.UID).pullSecrets(r.ctx, pod)
			if len(secrets) != 1 || secrets[0].Name != "registry" || secrets[0].Type != corev1.SecretTypeDockerConfigJson || string(secrets[0].Data[corev1.DockerConfigJsonKey]) != config {
				t.Errorf("the secrets are %v, want %s", secrets, config)
			}
			if err := r.UpdateVolumes(r.ctx, pod.Namespace, pod.Name, pod.UID, send("2")); err != nil {
				t.Error(err)
			}
		}
		if !r.TakesPullSecrets() {
			t.Error("the engine does not take them")
		}
	})
}
