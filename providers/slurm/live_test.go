//go:build slurmlive

package slurm

import (
	"io"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod with an init container on the site of a configuration file:
//
//	SLURM_LIVE_CONFIG=slurm.yaml SLURM_LIVE_IMAGE=busybox go test -tags slurmlive -run TestLive -v -timeout 1h ./providers/slurm
func TestLive(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("SLURM_LIVE_CONFIG"))
	if err != nil {
		t.Fatalf("SLURM_LIVE_CONFIG has to name a configuration file: %v", err)
	}
	config, err := ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	home := grouptest.NewCluster(types.UID(uuid.NewUUID()))
	home.SetConfigMap("settings", map[string]string{"colour": "light 'blue'"})
	p, n, err := New(home.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Close(t, p)
	if err := n.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := grouptest.NewPod("live")
	pod.UID = types.UID(uuid.NewUUID())
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	container := func(name, script string) corev1.Container {
		return corev1.Container{
			Name: name, Image: os.Getenv("SLURM_LIVE_IMAGE"), Command: []string{"/bin/sh", "-c", script}, Env: []corev1.EnvVar{{Name: "COLOUR", Value: "light 'blue'"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}, {Name: "shared", MountPath: "/shared"}},
		}
	}
	pod.Spec.InitContainers = []corev1.Container{container("first", `echo hello >"$VIRTUAL_KUBELET_MOUNTS/shared/letter"`)}
	pod.Spec.Containers = []corev1.Container{container("main", `cat "$VIRTUAL_KUBELET_MOUNTS/shared/letter"; [ "$(cat "$VIRTUAL_KUBELET_MOUNTS/settings/colour")" = "$COLOUR" ] && sleep 5 && exit 3`)}
	home.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.DeletePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
	}()
	for {
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(status.Phase, status.Reason, status.Message)
		if end := status.ContainerStatuses[0].State.Terminated; end != nil {
			if end.ExitCode != 3 {
				t.Errorf("the container has ended with %v", end)
			}
			break
		}
		time.Sleep(5 * time.Second)
	}
	log, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if text, err := io.ReadAll(log); err != nil || string(text) != "hello\n" {
		t.Errorf("the log is %q, error %v", text, err)
	}
}
