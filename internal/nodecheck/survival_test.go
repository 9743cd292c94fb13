package nodecheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the new checks make of what they have seen.
func TestSidecarStoppedLast(t *testing.T) {
	began := time.Unix(1700000000, 0)
	at := func(seconds int) metav1.Time { return metav1.NewTime(began.Add(time.Duration(seconds) * time.Second)) }
	for _, c := range []struct {
		what          string
		main, sidecar int
		log           string
		says          string
	}{
		{"as it should be", 8, 8, "runs\nhook at 1700000000\n", ""},
		{"the sidecar is stopped with the container", 8, 1, "runs\nhook at 1700000000\n", "the sidecar was stopped at"},
		{"the sidecar is killed at once", 8, 8, "runs\n", "with at least two seconds"},
		{"the hook does not run", 8, 9, "runs\nhook at \n", "before its preStop hook had run"},
		{"the hook runs when it is the sidecar's turn", 8, 10, "runs\nhook at 1700000009\n", "hooks of all containers run when the deletion begins"},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(c.main)}}}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "sidecar", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(c.sidecar)}}}},
		}}
		assertSays(t, c.what, sidecarStoppedLast(pod, c.log), c.says)
	}
}

func TestReadySince(t *testing.T) {
	began := time.Unix(1700000000, 0)
	for seconds, says := range map[int]string{6: "", 5: "", 4: "", 3: "3s after the start", 0: "0s after the start"} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}}}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodScheduled}, {Type: corev1.PodReady, LastTransitionTime: metav1.NewTime(began.Add(time.Duration(seconds) * time.Second))}},
		}}
		assertSays(t, "ready late", readySince(pod, 5*time.Second), says)
	}
}

func TestIsOneRun(t *testing.T) {
	for _, c := range []struct{ what, before, log, says string }{
		{"one run", "a\n", "a\n", ""},
		{"one run of which nothing was known", "", "a\n", ""},
		{"two runs in one log", "a\n", "a\nb\n", "each run prints a line"},
		{"another run", "a\n", "b\n", `the log was "a\n", and is "b\n"`},
		{"the log is lost", "a\n", "", "each run prints a line"},
	} {
		assertSays(t, c.what, isOneRun(c.before, c.log), c.says)
	}
}

// assertSays checks that an error says something, or that there is none.
func assertSays(t *testing.T, what string, err error, says string) {
	t.Helper()
	if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%s: got %v, want %q", what, err, says)
	}
}

func TestPathsNaming(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"pods/uid-1/volumes/scratch/file-abc", "pods/uid-2", "logs/default_name_uid-1"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]int{"uid-1": 2, "abc": 1, "uid": 3, "volumes/scratch": 0, "none": 0} {
		paths, err := pathsNaming([]string{filepath.Join(dir, "pods"), filepath.Join(dir, "logs"), filepath.Join(dir, "missing")}, text)
		if err != nil || len(paths) != want {
			t.Errorf("%s: %q, %v, want %d paths", text, paths, err, want)
		}
	}
	if _, err := pathsNaming([]string{filepath.Join(dir, "pods", "\x00")}, "x"); err == nil {
		t.Error("a directory that cannot be read is no error")
	}
}

// Without directories, or a way to restart the agent, the checks that take them say so.
func TestSelectionOfWhatTakesMore(t *testing.T) {
	all := Selection{Capabilities: Capabilities()}
	n := NewForClient(nil, Options{Name: "node", Shell: DefaultShell()})
	restarts, onDisk := Check{Name: "a", Restarts: true}, Check{Name: "b", OnDisk: true}
	if got := all.Reason(restarts, n); !strings.Contains(got, "nothing is given that restarts") {
		t.Errorf("got %q", got)
	}
	if got := all.Reason(onDisk, n); !strings.Contains(got, "no directories") {
		t.Errorf("got %q", got)
	}
	n.Directories, n.Restart = []string{"/"}, func(context.Context, func(context.Context) error) error { return nil }
	if got := all.Reason(restarts, n) + all.Reason(onDisk, n); got != "" {
		t.Errorf("got %q", got)
	}
}

// A restart that fails fails the check, in words that say what failed.
func TestRestartFails(t *testing.T) {
	s, _ := onFake(t, Options{Restart: func(context.Context, func(context.Context) error) error { return errors.New("it does not start") }})
	assertSays(t, "restart", s.restart(t.Context(), nothing), "restart the agent of the node: it does not start")
}
