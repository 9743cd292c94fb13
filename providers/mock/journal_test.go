package mock_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func journalFile(t *testing.T) *os.File {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "journal"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// events returns the events of a journal, each with the name of its pod.
func events(t *testing.T, f *os.File) (list []string) {
	t.Helper()
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var r struct {
			Event string
			Pod   corev1.Pod
		}
		if json.Unmarshal(line, &r) == nil {
			list = append(list, r.Event+" "+r.Pod.Name)
		}
	}
	return list
}

func TestJournalReplay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := journalFile(t)
		first, err := mock.New(mock.Config{}, mock.WithJournal(f))
		if err != nil {
			t.Fatal(err)
		}
		job := newPod("job", "run-for", "1m")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		done := newPod("done", "run-for", "0s", "exit-code", "3")
		done.Spec.RestartPolicy = corev1.RestartPolicyNever
		secret := newPod("web")
		secret.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PW", Value: "hunter2"}}
		for _, pod := range []*corev1.Pod{secret, job, done, newPod("gone"), newPod("stopping", "stop-delay", "20s"), newPod("crashes", "run-for", "5s", "exit-code", "1")} {
			mustCreate(t, first, pod)
		}
		changed := newPod("web")
		changed.Labels = map[string]string{"a": "b"}
		changed.Spec.Containers[0].Env = secret.Spec.Containers[0].Env
		if err := first.UpdatePod(ctx, changed); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"gone", "stopping"} {
			if err := first.DeletePod(ctx, newPod(name)); err != nil {
				t.Fatal(err)
			}
		}
		pass(8 * time.Second)
		before, _ := first.GetPods(ctx)
		first.Close() // nothing more is written, as if it was killed

		second, err := mock.New(mock.Config{PodCIDR: "10.244.0.0/16"}, mock.WithJournal(f))
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		after, _ := second.GetPods(ctx)
		if len(after) != len(before) || len(after) != 5 {
			t.Fatalf("%d pods before, %d after", len(before), len(after))
		}
		for i := range before {
			// Transition times of conditions are not kept.
			for _, pods := range [][]*corev1.Pod{before, after} {
				pods[i].Status.Conditions = nil
				pods[i].Spec.Containers[0].Env = nil
			}
			a, _ := json.Marshal(before[i])
			b, _ := json.Marshal(after[i])
			if !bytes.Equal(a, b) {
				t.Errorf("before %s\nafter  %s", a, b)
			}
		}
		if err := second.CreatePod(ctx, newPod("web")); !errdefs.IsConflict(err) {
			t.Errorf("double create after the replay: %v", err)
		}
		mustCreate(t, second, newPod("new"))
		ips := map[string]string{}
		pods, _ := second.GetPods(ctx)
		for _, pod := range pods {
			if other := ips[pod.Status.PodIP]; other != "" {
				t.Errorf("%s and %s have the same address", other, pod.Name)
			}
			ips[pod.Status.PodIP] = pod.Name
		}

		r := receive(t, second)
		pass(12 * time.Second) // 20 s since the delete
		wantPhases(t, r, "stopping", corev1.PodSucceeded)
		pass(40 * time.Second) // a minute since the creation
		wantPhases(t, r, "job", corev1.PodSucceeded)

		data, _ := os.ReadFile(f.Name())
		if strings.Contains(string(data), "hunter2") {
			t.Error("the journal has a value of the environment")
		}
		creates := map[string]int{}
		for _, event := range events(t, f) {
			if strings.HasPrefix(event, "create ") {
				creates[event]++
			}
		}
		for event, n := range creates {
			if n != 1 {
				t.Errorf("%s: %d times", event, n)
			}
		}
	})
}

func TestJournalOfAProcessThatWasAwayForLong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := journalFile(t)
		first, err := mock.New(mock.Config{}, mock.WithJournal(f))
		if err != nil {
			t.Fatal(err)
		}
		job := newPod("job", "run-for", "1m")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		mustCreate(t, first, job)
		mustCreate(t, first, newPod("stopping", "stop-delay", "10s"))
		if err := first.DeletePod(ctx, newPod("stopping")); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		first.Close()
		pass(time.Hour)
		second := newProvider(t, mock.Config{}, mock.WithJournal(f))
		s := mustStatus(t, second, job)
		if s.Phase != corev1.PodSucceeded || !s.ContainerStatuses[0].State.Terminated.FinishedAt.Time.Equal(begin.Add(time.Minute)) {
			t.Errorf("status %+v", s)
		}
		if _, err := second.GetPod(ctx, "ns", "stopping"); !errdefs.IsNotFound(err) {
			t.Errorf("a pod that had to stop: %v", err)
		}
		synctest.Wait()
		want := []string{"create job", "create stopping", "delete stopping"}
		got := events(t, f)
		if len(got) != 6 || strings.Join(got[:3], ",") != strings.Join(want, ",") {
			t.Errorf("events %v", got)
		}
	})
}

func TestJournalWithATornLine(t *testing.T) {
	f := journalFile(t)
	first := newProvider(t, mock.Config{}, mock.WithJournal(f))
	mustCreate(t, first, newPod("a"))
	if _, err := f.WriteString(`{"time":"2026-01-01T00:00:00Z","event":"create","pod":{"meta`); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c"} {
		p := newProvider(t, mock.Config{}, mock.WithJournal(f))
		if _, err := p.GetPod(ctx, "ns", "a"); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, p, newPod(name))
	}
	last := newProvider(t, mock.Config{}, mock.WithJournal(f))
	if pods, _ := last.GetPods(ctx); len(pods) != 3 {
		t.Errorf("%d pods", len(pods))
	}
}

func TestJournalThatIsNone(t *testing.T) {
	f := journalFile(t)
	if _, err := f.WriteString("{\"kind\":\"Pod\"}\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := mock.New(mock.Config{}, mock.WithJournal(f)); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %v", err)
	}
}

func TestJournalRecordsRefusals(t *testing.T) {
	f := journalFile(t)
	p := newProvider(t, mock.Config{}, mock.WithJournal(f))
	mustCreate(t, p, newPod("a"))
	_ = p.CreatePod(ctx, newPod("a"))
	_ = p.CreatePod(ctx, newPod("b", "fail-create", "no"))
	if got := strings.Join(events(t, f), ","); got != "create a,refused a,refused b" {
		t.Errorf("events are %s", got)
	}
}

// broken fails to write.
type broken struct {
	io.ReadWriteSeeker
	err error
}

func (b *broken) Write(data []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return b.ReadWriteSeeker.Write(data)
}

func TestJournalThatCannotBeWritten(t *testing.T) {
	rw := &broken{ReadWriteSeeker: journalFile(t)}
	p := newProvider(t, mock.Config{}, mock.WithJournal(rw))
	rw.err = errors.New("disk full")
	if err := p.CreatePod(ctx, newPod("a")); !errdefs.IsUnavailable(err) {
		t.Errorf("create: %v", err)
	}
	if pods, _ := p.GetPods(ctx); len(pods) != 0 {
		t.Error("the pod is held all the same")
	}
	if err := p.Ping(ctx); !errdefs.IsUnavailable(err) {
		t.Errorf("ping: %v", err)
	}
	rw.err = nil
	mustCreate(t, p, newPod("a"))
	if err := p.Ping(ctx); err != nil {
		t.Errorf("ping: %v", err)
	}
}
