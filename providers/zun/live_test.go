//go:build zunlive

package zun

import (
	"cmp"
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
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod in a real cloud, with the variables OS_*. It fails without.
func TestLive(t *testing.T) {
	config := Config{ClusterName: "live-" + rand.String(5)}
	if err := config.Merge(os.Getenv); err != nil {
		t.Fatal(err)
	}
	cluster := grouptest.NewCluster("live")
	p, err := New(cluster.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Close(t, p)
	pod := grouptest.NewPod("live-" + rand.String(5))
	pod.UID, pod.Spec.RestartPolicy = types.UID(rand.String(20)), corev1.RestartPolicyNever
	main := &pod.Spec.Containers[0]
	main.Image = cmp.Or(os.Getenv("ZUN_TEST_IMAGE"), "busybox:1.36")
	main.Command, main.Env = []string{"sh", "-c", `echo "$COLOUR"; sleep 60; exit 3`}, []corev1.EnvVar{{Name: "COLOUR", Value: "it's \"blue\""}}
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.DeletePod(context.Background(), pod); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("the capsule of %s is left over: %v", pod.Name, err)
		}
	})
	status := func(is func(*corev1.PodStatus) bool) func() error {
		return func() error {
			s, err := p.GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
			if err == nil && !is(s) {
				err = fmt.Errorf("it is %+v", s)
			}
			return err
		}
	}
	grouptest.Eventually(t, "the pod runs", status(func(s *corev1.PodStatus) bool { return s.Phase == corev1.PodRunning && s.PodIP != "" }))
	grouptest.Eventually(t, "the log has its line", func() error {
		stream, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{Timestamps: true})
		if errors.Is(err, errors.ErrUnsupported) {
			t.Log(err) // by the version
			return nil
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(stream)
		if err == nil && !strings.HasSuffix(string(text), "Z it's \"blue\"\n") {
			err = fmt.Errorf("it is %q", text)
		}
		return err
	})
	grouptest.Eventually(t, "the pod has failed with 3", status(func(s *corev1.PodStatus) bool {
		return s.Phase == corev1.PodFailed && s.ContainerStatuses[0].State.Terminated.ExitCode == 3
	}))
	if err := p.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	grouptest.Eventually(t, "the pod is gone", func() error {
		if _, err := p.GetPod(t.Context(), pod.Namespace, pod.Name); !errdefs.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}
