//go:build interlinklive

package interlink

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod by a real interLink API server, with the configuration file that
// INTERLINK_TEST_CONFIG names. It fails without.
func TestLive(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("INTERLINK_TEST_CONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	cluster := grouptest.NewCluster("live")
	p, n, err := New(cluster.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Close(t, p)
	if err := n.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.SetConfigMap("settings", map[string]string{"size": "big"})
	pod := grouptest.NewPod("live-" + rand.String(5))
	pod.UID, pod.CreationTimestamp.Time = types.UID(uuid.NewUUID()), time.Now().Add(time.Minute)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	main := &pod.Spec.Containers[0]
	main.Image = cmp.Or(os.Getenv("INTERLINK_TEST_IMAGE"), "docker://busybox:1.36")
	main.Command = []string{"sh", "-c", `echo "$COLOUR"; cat /conf/size; echo; exit 3`}
	main.Env = []corev1.EnvVar{{Name: "COLOUR", Value: "it's \"blue\""}}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "conf", MountPath: "/conf"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
	}}}}
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.DeletePod(context.Background(), pod); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("the job of %s is left over: %v", pod.Name, err)
		}
	})
	eventually(t, "the pod has failed with 3", func() error {
		status, err := p.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
		if err == nil && (status.Phase != corev1.PodFailed || status.ContainerStatuses[0].State.Terminated.ExitCode != 3) {
			err = fmt.Errorf("it is %+v", status)
		}
		return err
	})
	eventually(t, "the log has its lines", func() error {
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
	if id := cluster.Pod(pod.Namespace, pod.Name).Annotations[AnnotationJobID]; id == "" {
		t.Error("the plugin gives no ID of the job")
	}
	if err := p.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone", func() error {
		_, err := p.GetPod(t.Context(), pod.Namespace, pod.Name)
		if errdefs.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

func eventually(t *testing.T, what string, check func() error) {
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
