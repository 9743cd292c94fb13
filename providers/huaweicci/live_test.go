//go:build huaweiccilive

package huaweicci

import (
	"bytes"
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

// TestLive runs a pod in the real service, with the configuration that CCI_TEST_CONFIG names
// and the environment that README.md has. It fails without.
func TestLive(t *testing.T) {
	data, err := os.ReadFile(os.Getenv("CCI_TEST_CONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	config.Merge(os.Getenv)
	config.Cluster = "live-" + rand.String(5)
	cluster := grouptest.NewCluster("live")
	p, err := New(t.Context(), cluster.Config(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if err := p.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.NotifyPods(t.Context(), func(*corev1.Pod) {})
	pod := grouptest.NewPod("live-" + rand.String(5))
	pod.UID, pod.Spec.RestartPolicy = types.UID(rand.String(20)), corev1.RestartPolicyNever
	main := &pod.Spec.Containers[0]
	main.Image = cmp.Or(os.Getenv("CCI_TEST_IMAGE"), "busybox:1.36")
	main.Command, main.Env = []string{"sh", "-c", `echo "$COLOUR"; sleep 60; exit 3`}, []corev1.EnvVar{{Name: "COLOUR", Value: "it's \"blue\""}}
	cluster.SetPod(pod)
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.DeletePod(context.Background(), pod); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("pod %s is left over: %v", pod.Name, err)
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
		stream, err := p.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, main.Name, api.ContainerLogOpts{})
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		text, err := io.ReadAll(stream)
		if err == nil && !strings.Contains(string(text), `it's "blue"`) {
			err = errors.New("it is " + string(bytes.TrimSpace(text)))
		}
		return err
	})
	grouptest.Eventually(t, "the exit code is 3", status(func(s *corev1.PodStatus) bool {
		return s.Phase == corev1.PodFailed && s.ContainerStatuses[0].State.Terminated.ExitCode == 3
	}))
}
