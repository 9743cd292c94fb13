package grouptest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// Live runs a pod in a real service, which may take its time, and deletes it: a container
// with a variable and a file, whose exit code and log have to be right. The paths of volumes
// begin with the value of VIRTUAL_KUBELET_MOUNTS in the container, if it has one. Live
// returns the pod as it was in the cluster before its deletion.
func Live(t *testing.T, p nodeutil.Provider, n node.NodeProvider, c *Cluster, image string) *corev1.Pod {
	t.Helper()
	if err := n.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.SetConfigMap("settings", map[string]string{"size": "big"})
	pod := NewPod("live-" + rand.String(5))
	pod.UID, pod.CreationTimestamp.Time = types.UID(uuid.NewUUID()), time.Now().Add(time.Minute)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	main := &pod.Spec.Containers[0]
	main.Image = image
	main.Command = []string{"sh", "-c", `echo "$COLOUR"; cat "$VIRTUAL_KUBELET_MOUNTS/conf/size"; echo; exit 3`}
	main.Env = []corev1.EnvVar{{Name: "COLOUR", Value: "it's \"blue\""}}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "conf", MountPath: "/conf"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
	}}}}
	c.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.DeletePod(context.WithoutCancel(t.Context()), pod); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("pod %s is left over in the service: %v", pod.Name, err)
		}
	})
	Eventually(t, "the pod has failed with 3", func() error {
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		if end := status.ContainerStatuses[0].State.Terminated; status.Phase != corev1.PodFailed || end == nil || end.ExitCode != 3 {
			return fmt.Errorf("it is %+v", status)
		}
		return nil
	})
	Eventually(t, "the log has its lines", func() error {
		stream, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{})
		if err != nil {
			return err
		}
		defer stream.Close()
		text, err := io.ReadAll(stream)
		if err == nil && !strings.Contains(string(text), "it's \"blue\"\nbig\n") {
			err = fmt.Errorf("it is %q", text)
		}
		return err
	})
	seen := c.Pod(pod.Namespace, pod.Name)
	if err := p.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the pod is gone", func() error {
		_, err := p.GetPod(t.Context(), pod.Namespace, pod.Name)
		if errdefs.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	return seen
}

// Eventually waits until check returns no error, for up to ten minutes: a real service takes
// its time.
func Eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v", what, err)
		case <-time.After(5 * time.Second):
		}
	}
}
