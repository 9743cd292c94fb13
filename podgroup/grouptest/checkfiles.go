package grouptest

import (
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func (r *run) withVolume(name string, source corev1.VolumeSource) *corev1.Pod {
	pod := r.pod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "files", VolumeSource: source}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files"}}
	return pod
}

func (r *run) file(pod *corev1.Pod, path string) string {
	r.Helper()
	u, err := r.world.OfPod(pod.Name)
	r.must(err)
	return string(u.Files["files"][path].Data)
}

func changedFile(r *run) {
	r.cluster.SetConfigMap("settings", map[string]string{"level": "one"})
	pod := r.withVolume("changed", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}})
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	if got := r.file(pod, "level"); got != "one" {
		r.Fatalf("the file was created with %q", got)
	}
	r.cluster.SetConfigMap("settings", map[string]string{"level": "two"})
	r.until("that the file has changed", func() bool { return r.file(pod, "level") == "two" })
}

func renewedToken(r *run) {
	pod := r.withVolume("token", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}})
	pod.Spec.ServiceAccountName = "default"
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	first := r.file(pod, "token")
	if first == "" {
		r.Fatal("the token is not there")
	}
	time.Sleep(55 * time.Minute)
	synctest.Wait()
	r.until("that the token is another one", func() bool { return r.file(pod, "token") != first })
	if n := r.cluster.Tokens(); n != 2 {
		r.Errorf("%d tokens were requested", n)
	}
}
