package podengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func TestLogsOfAttempts(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.plans["a"] = plan{runs: time.Second, code: 1} }, func(r *rig) {
		read := func(previous bool) string {
			reader, err := r.GetContainerLogs(r.ctx, "ns", "p", "a", api.ContainerLogOpts{Previous: previous})
			if err != nil {
				return err.Error()
			}
			text, _ := io.ReadAll(reader)
			_ = reader.Close()
			return string(text)
		}
		pod := makePod("a")
		r.create(pod)
		if got := read(true); !strings.Contains(got, "not found") {
			t.Errorf("the previous log of a container that runs for the first time is %q", got)
		}
		for i := range 2 {
			line := fmt.Sprintf("2000-01-01T00:00:00Z stdout F run %d\n", i)
			if err := os.WriteFile(r.runtime.newest("a").log, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			r.after(2100 * time.Millisecond)
		}
		r.wantState(pod, "Running a=CrashLoopBackOff#1")
		if got := read(true); got != "run 1\n" {
			t.Errorf("the previous log of a container that waits is %q", got)
		}
		r.after(time.Hour)
		files, _ := filepath.Glob(filepath.Join(r.cfg.Node.LogDirectory(pod), "a", "*"))
		if len(files) > 2 {
			t.Errorf("logs are left of containers that have gone: %v", files)
		}
	})
}

// Between its creation and its start an attempt has no log: that of the one before it counts.
func TestLogsWhileAContainerIsStarted(t *testing.T) {
	inBubbleWith(t, func(r *rig) { r.runtime.plans["a"] = plan{runs: time.Second, code: 1} }, func(r *rig) {
		var got []string
		r.runtime.intercept(func(ctx context.Context, call string) error {
			if call != "StartContainer a" {
				return nil
			}
			newest := r.runtime.newest("a").log
			if err := os.Remove(newest); err != nil { // a runtime makes it when it starts the container
				return err
			}
			reader, err := r.GetContainerLogs(ctx, "ns", "p", "a", api.ContainerLogOpts{})
			if err != nil {
				got = append(got, err.Error())
			} else {
				text, _ := io.ReadAll(reader)
				_ = reader.Close()
				got = append(got, string(text))
			}
			return os.WriteFile(newest, fmt.Appendf(nil, "2000-01-01T00:00:00Z stdout F run %d\n", len(got)), 0o600)
		})
		r.create(makePod("a"))
		r.after(30 * time.Second)
		want := []string{`container "a" in pod "p" is waiting to start: ContainerCreating`, "run 1\n", "run 2\n"}
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("the log before each start is %q, want %q", got, want)
		}
	})
}

func TestOneStreamOfALog(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(makePod("a"))
		text := "2000-01-01T00:00:00Z stdout F out\n2000-01-01T00:00:01Z stderr F err\n"
		if err := os.WriteFile(r.runtime.newest("a").log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for stream, want := range map[string]string{"": "out\nerr\n", corev1.LogStreamStdout: "out\n", corev1.LogStreamStderr: "err\n"} {
			reader, err := r.GetContainerLogStream(r.ctx, "ns", "p", "a", stream, api.ContainerLogOpts{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(reader)
			if err != nil || string(got) != want {
				t.Errorf("stream %q: %q, %v", stream, got, err)
			}
			_ = reader.Close()
		}
	})
}

func TestPartsOfALog(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(makePod("a"))
		text := ""
		for i := range 3 { // a minute, half a minute and no time ago
			stamp := time.Now().Add(time.Duration(i-2) * 30 * time.Second).Format(time.RFC3339Nano)
			text += fmt.Sprintf("%s stdout F line %d\n", stamp, i)
		}
		if err := os.WriteFile(r.runtime.newest("a").log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			opts api.ContainerLogOpts
			want string
		}{
			"all":          {api.ContainerLogOpts{}, "line 0\nline 1\nline 2\n"},
			"the tail":     {api.ContainerLogOpts{Tail: 2}, "line 1\nline 2\n"},
			"bytes":        {api.ContainerLogOpts{LimitBytes: 4}, "line"},
			"the last 40s": {api.ContainerLogOpts{SinceSeconds: 40}, "line 1\nline 2\n"},
			"since a time": {api.ContainerLogOpts{SinceTime: time.Now().Add(-time.Second)}, "line 2\n"},
			"with times":   {api.ContainerLogOpts{Tail: 1, Timestamps: true}, time.Now().Format("2006-01-02T15:04:05.000000000Z07:00") + " line 2\n"},
		} {
			reader, err := r.GetContainerLogs(r.ctx, "ns", "p", "a", c.opts)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(reader); err != nil || string(got) != c.want {
				t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
			}
			_ = reader.Close()
		}
	})
}

// A log that is followed goes on with what the container writes, until the
// container ends or the reader is closed.
func TestFollowedLog(t *testing.T) {
	inRealTime(t, makePod("a", never), func(r *rig) {
		log := r.runtime.newest("a").log
		write := func(text string) {
			file, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = fmt.Fprintf(file, "2000-01-01T00:00:00Z stdout F %s\n", text)
				err = errors.Join(err, file.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		follow := func() io.ReadCloser {
			reader, err := r.GetContainerLogs(r.ctx, "ns", "p", "a", api.ContainerLogOpts{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			return reader
		}
		expect := func(reader io.Reader, want string) {
			t.Helper()
			got := make([]byte, len(want))
			if _, err := io.ReadFull(reader, got); err != nil || string(got) != want {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
		}
		write("one")
		reader, closed := follow(), follow()
		expect(reader, "one\n")
		expect(closed, "one\n")
		write("two")
		expect(reader, "two\n")
		if err := closed.Close(); err != nil {
			t.Error(err)
		}
		if n, err := closed.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Error("a reader that was closed reads on")
		}
		r.runtime.exit(r.runtime.newest("a").Id, 0)
		if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
			t.Errorf("at the end of the container: %q, %v", rest, err)
		}
		_ = reader.Close()
	})
}

func TestLogsThatCannotBe(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.images.pull = func(context.Context, string) error { return errors.New("no such image") }
		r.create(makePod("a b", first(func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullNever })))
		open := func(pod, container string, opts api.ContainerLogOpts) error {
			_, err := r.GetContainerLogs(r.ctx, "ns", pod, container, opts)
			return err
		}
		if err := open("q", "a", api.ContainerLogOpts{}); !errdefs.IsNotFound(err) {
			t.Errorf("a pod that there is not: %v", err)
		}
		if err := open("p", "c", api.ContainerLogOpts{}); !errdefs.IsNotFound(err) {
			t.Errorf("a container that there is not: %v", err)
		}
		// A kubelet answers 400, of which clients see the text.
		want := `previous terminated container "b" in pod "p" not found`
		if err := open("p", "b", api.ContainerLogOpts{Previous: true}); !errdefs.IsInvalidInput(err) || err.Error() != want {
			t.Errorf("the end of a container that has not begun: %v, want %s", err, want)
		}
		waits := func(container, why string) {
			t.Helper()
			err := open("p", container, api.ContainerLogOpts{})
			if want := fmt.Sprintf("container %q in pod \"p\" is waiting to start: %s", container, why); !errdefs.IsInvalidInput(err) || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		waits("a", "ErrImageNeverPull")
		waits("b", "image can't be pulled")
		r.after(7 * time.Second)
		waits("b", "trying and failing to pull image")
	})
	inBubble(t, func(r *rig) {
		r.create(makePod("a"))
		if err := os.Remove(r.runtime.newest("a").log); err != nil {
			t.Fatal(err)
		}
		if _, err := r.GetContainerLogs(r.ctx, "ns", "p", "a", api.ContainerLogOpts{}); !errdefs.IsInvalidInput(err) {
			t.Errorf("a log that somebody has removed: %v", err)
		}
	})
}

// A container that the runtime does not show waits only if its status says so; one whose end is known still
// has its log.
func TestLogsThatTheRuntimeDoesNotHave(t *testing.T) {
	windows := func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }
	deadline := func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(2)) }
	forever := func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	for name, test := range map[string]struct {
		pull  func(context.Context, string) error
		plan  plan
		pod   *corev1.Pod
		state string
		want  string
	}{
		"its run is over":  {nil, plan{runs: time.Second}, makePod("a", never), "Succeeded a=Completed/0", ""},
		"it crashed":       {nil, plan{runs: time.Second, code: 1}, makePod("a"), "Running a=CrashLoopBackOff#1", ""},
		"it ran":           {nil, plan{}, makePod("a", never), "Running a=ready", "is not available"},
		"it was rejected":  {nil, plan{}, makePod("a", windows), "Failed", "is not available"},
		"its pod is over":  {forever, plan{}, makePod("a", deadline), "Failed a=ContainerStatusUnknown/137", "is terminated"},
		"it has not begun": {forever, plan{}, makePod("a"), "Pending a=ContainerCreating", "is waiting to start: ContainerCreating"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, func(r *rig) { r.runtime.plans["a"], r.images.pull = test.plan, test.pull }, func(r *rig) {
				r.create(test.pod)
				r.after(5 * time.Second)
				r.wantState(test.pod, test.state)
				r.runtime.forget()
				reader, err := r.GetContainerLogs(r.ctx, "ns", "p", "a", api.ContainerLogOpts{})
				switch {
				case err == nil && test.want == "":
					_ = reader.Close()
				case !errdefs.IsInvalidInput(err) || err.Error() != `container "a" in pod "p" `+test.want:
					t.Errorf("%v, want that it %s", err, test.want)
				}
			})
		})
	}
}
