//go:build integration

package kubectl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// patience is how long a test waits for what should take a moment.
const patience = 120 * time.Second

// user runs kubectl in a namespace, with further environment variables.
type user struct {
	namespace string
	env       []string
}

func (u user) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := cluster.Kubectl(ctx, append([]string{"--namespace", u.namespace}, args...)...)
	cmd.Env = append(cmd.Env, u.env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs kubectl to its end, and returns what it prints; it has to succeed.
func (u user) run(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := u.result(t, nil, args...)
	if code != 0 {
		t.Fatalf("kubectl %q ended with %d: %s%s", args, code, stdout, stderr)
	}
	return stdout
}

// result runs kubectl to its end, with or without an input.
func (u user) result(t *testing.T, in io.Reader, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := u.kubectl(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("kubectl %q: %v: %s%s", args, err, &out, &errOut)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// start starts kubectl; at the end of the test it is killed, unless it has
// ended before.
func (u user) start(t *testing.T, args ...string) *background {
	t.Helper()
	b := &background{cmd: u.kubectl(t.Context(), args...), out: &lockedbuffer.Buffer{}, ended: make(chan struct{})}
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.out
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.ended)
		_ = b.cmd.Wait() // the exit code is what counts
	}()
	t.Cleanup(b.kill)
	return b
}

// background is a kubectl that goes on for a while.
type background struct {
	cmd   *exec.Cmd
	out   *lockedbuffer.Buffer
	ended chan struct{}
}

func (b *background) kill() {
	_ = b.cmd.Process.Kill() // fails if it has ended
	<-b.ended
}

// wait waits until kubectl ends, and returns its exit code.
func (b *background) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-b.ended:
	case <-time.After(patience):
		t.Fatalf("kubectl does not end; it has printed\n%s", b.out)
	}
	return b.cmd.ProcessState.ExitCode()
}

func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the default service account exists", func() (bool, string) {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return ns.Name
}

func createPod(t *testing.T, namespace, name string, spec corev1.PodSpec, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       spec,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// runPod creates a pod, and waits until it is Ready.
func runPod(t *testing.T, namespace, name string, spec corev1.PodSpec, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod := createPod(t, namespace, name, spec, annotations)
	eventually(t, "the pod is Ready", func() (bool, string) {
		var err error
		if pod, err = client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", pod.Status)
	})
	return pod
}

// eventually polls until a condition holds; the test fails with the last state
// if it does not.
func eventually(t *testing.T, what string, condition func() (ok bool, state string)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ok, state := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for: %s; last seen: %s", what, state)
		}
	}
}

func sha256OfFile(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
