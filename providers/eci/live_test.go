//go:build ecilive

package eci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod in the real service, with the settings of the environment. It
// fails if a setting is missing.
func TestLive(t *testing.T) {
	var config Config
	if err := config.Merge(os.Getenv); err != nil {
		t.Fatal(err)
	}
	config.ClusterName += "-live-" + rand.String(5)
	config.UpdateFiles = true
	r := newRig(t, 0)
	r.Provider = r.newProvider(t, config)

	pod := newPod("live-" + rand.String(5))
	pod.UID = types.UID(rand.String(20))
	pod.Spec.Containers[0].Image = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1"
	if image := os.Getenv("ECI_TEST_IMAGE"); image != "" {
		pod.Spec.Containers[0].Image = image
	}
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "echo hello; sleep 3600"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
	}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "conf", MountPath: "/conf"}}
	r.home.SetConfigMap("settings", map[string]string{"size": "big"})
	r.create(t, pod)
	t.Cleanup(func() {
		if err := r.DeletePod(context.Background(), pod); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("the container group of %s is left over: %v", pod.Name, err)
		}
	})
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Errorf("a creation that is repeated: %v", err)
	}
	grouptest.Eventually(t, "the pod is ready", func() error {
		status, err := r.GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
		if err == nil && (status.Phase != corev1.PodRunning || !status.ContainerStatuses[0].Ready) {
			err = fmt.Errorf("it is %+v", status)
		}
		return err
	})
	grouptest.Eventually(t, "the log has its line", func() error {
		log, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{Timestamps: true})
		if err != nil {
			return err
		}
		text, err := io.ReadAll(log)
		if err == nil && !strings.HasSuffix(string(text), "Z hello\n") {
			err = fmt.Errorf("it is %q", text)
		}
		return err
	})
	s := &streams{sizes: make(chan api.TermSize)}
	defer close(s.sizes)
	if err := r.RunInContainer(t.Context(), pod.Namespace, pod.Name, "main", []string{"sh", "-c", `echo "$COLOUR"; cat /conf/size`}, s); err != nil || s.out.String() != "blue\nbig" {
		t.Errorf("a command prints %q, and %q as errors: %v", s.out.String(), s.err.String(), err)
	}
	r.home.SetConfigMap("settings", map[string]string{"size": "small"})
	grouptest.Eventually(t, "the change of the ConfigMap is in the volume", func() error {
		s := &streams{sizes: make(chan api.TermSize)}
		defer close(s.sizes)
		err := r.RunInContainer(t.Context(), pod.Namespace, pod.Name, "main", []string{"cat", "/conf/size"}, s)
		if err == nil && s.out.String() != "small" {
			err = fmt.Errorf("it has %q", s.out.String())
		}
		return err
	})
	if c := r.status(t, pod).ContainerStatuses[0]; c.RestartCount != 0 {
		t.Errorf("UpdateContainerGroup restarts containers for files: each renewal of a token would: %+v", c)
	}
	if u, err := listed(t.Context(), r.backend, pod); err != nil || len(u.Files["conf"]) != 1 {
		t.Errorf("a list does not show files: each restart of the node updates each pod: %v", err)
	}
	if _, err := r.GetStatsSummary(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	grouptest.Eventually(t, "the pod is gone", func() error {
		_, err := r.GetPod(t.Context(), pod.Namespace, pod.Name)
		if errdefs.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// listed returns the group of a pod from a list.
func listed(ctx context.Context, b *backend, pod *corev1.Pod) (podgroup.Unit, error) {
	for next := ""; ; {
		page, err := b.List(ctx, map[string]string{podgroup.TagClusterName: b.cfg.ClusterName}, next)
		if err != nil {
			return podgroup.Unit{}, err
		}
		for _, u := range page.Units {
			if u.Tags[podgroup.TagUID] == string(pod.UID) {
				return u, nil
			}
		}
		if next = page.Next; next == "" {
			return podgroup.Unit{}, errors.New("no list has it")
		}
	}
}
