package eci

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

func (r *rig) logs(t *testing.T, container string, opts api.ContainerLogOpts) (string, error) {
	t.Helper()
	log, err := r.GetContainerLogs(t.Context(), "default", "a", container, opts)
	if err != nil {
		return "", err
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	return string(text), err
}

func TestLogs(t *testing.T) {
	inVirtualTime(t, testLogs)
}

func testLogs(t *testing.T, r *rig) {
	r.create(t, newPod("a"))
	for _, text := range []string{"one", "two"} {
		if err := r.api.Print("a", "main", text); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := r.logs(t, "main", api.ContainerLogOpts{}); err != nil || text != "container main started\none\ntwo\n" {
		t.Errorf("the log is %q: %v", text, err)
	}
	if text, err := r.logs(t, "main", api.ContainerLogOpts{Tail: 1}); err != nil || text != "two\n" {
		t.Errorf("the last line is %q: %v", text, err)
	}
	text, err := r.logs(t, "main", api.ContainerLogOpts{Tail: 1, Timestamps: true})
	stamp, rest, _ := strings.Cut(text, " ")
	if _, timeErr := time.Parse(time.RFC3339Nano, stamp); err != nil || timeErr != nil || rest != "two\n" {
		t.Errorf("with its timestamp it is %q: %v", text, err)
	}
	time.Sleep(time.Hour)
	if err := r.api.Print("a", "main", "later"); err != nil {
		t.Fatal(err)
	}
	if text, err := r.logs(t, "main", api.ContainerLogOpts{SinceSeconds: 60}); err != nil || text != "later\n" {
		t.Errorf("the log of the last minute is %q: %v", text, err)
	}
	if _, err := r.logs(t, "nobody", api.ContainerLogOpts{}); !errdefs.IsNotFound(err) {
		t.Errorf("the log of a container that there is not gives %v", err)
	}
	if _, err := r.logs(t, "main", api.ContainerLogOpts{Previous: true}); !errdefs.IsInvalidInput(err) {
		t.Errorf("the log of a run that there was not gives %v", err)
	}
	if err := r.api.Exit("a", "main", 1); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if text, err := r.logs(t, "main", api.ContainerLogOpts{Previous: true, Tail: 1}); err != nil || text != "later\n" {
		t.Errorf("the log of the run before ends in %q: %v", text, err)
	}
}

// The API returns 500 lines by default, and refuses to return more than 2000.
func TestLongLogs(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	for i := range 2500 {
		if err := r.api.Print("a", "main", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for tail, want := range map[int]int{0: 2000, 1500: 1500, 5000: 2000} {
		text, err := r.logs(t, "main", api.ContainerLogOpts{Tail: tail})
		if lines := strings.Count(text, "\n"); err != nil || lines != want {
			t.Errorf("of the last %d lines there are %d, want %d: %v", tail, lines, want, err)
		}
	}
}

// crashLoop has the container of pod a wait to be started again.
func (r *rig) crashLoop(t *testing.T) {
	t.Helper()
	err := r.api.Change("a", func(u *grouptest.Unit) {
		u.Containers[0].Now = podgroup.Run{Reason: "CrashLoopBackOff", Started: u.Containers[0].Now.Started}
		u.Containers[0].Last.State = podgroup.Terminated
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A container that waits to be restarted has the log of its last run.
func TestLogsOfAContainerThatCrashes(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	if err := r.api.Exit("a", "main", 1); err != nil {
		t.Fatal(err)
	}
	r.crashLoop(t)
	if text, err := r.logs(t, "main", api.ContainerLogOpts{}); err != nil || text == "" {
		t.Errorf("its log is %q: %v", text, err)
	}
}

func TestLogsOfAPodThatWaits(t *testing.T) {
	r := newRig(t, time.Hour)
	r.create(t, newPod("a"))
	r.api.Advance(0)
	if _, err := r.logs(t, "main", api.ContainerLogOpts{}); !errdefs.IsInvalidInput(err) {
		t.Errorf("the error is %v", err)
	}
}

// A log that is followed ends with its container, and takes one call for the log each
// time, but no listings besides the controller's.
func TestFollowEndsWithTheContainer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		pod := newPod("a")
		pod.Spec.RestartPolicy = "Never"
		r.create(t, pod)
		log, err := r.GetContainerLogs(t.Context(), "default", "a", "main", api.ContainerLogOpts{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if _, err := io.ReadFull(log, make([]byte, len("container main started\n"))); err != nil {
			t.Fatal(err)
		}
		before := r.lists()
		for range 12 {
			if _, err := r.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		if listings := r.lists() - before; listings > 12 {
			t.Errorf("the controller has asked for 12 listings, and there were %d", listings)
		}
		if asked := r.api.Calls("DescribeContainerLog"); asked < 30 || asked > 32 {
			t.Errorf("in a minute the log is asked for %d times, want each 2s", asked)
		}
		if err := r.api.Print("a", "main", "last words"); err != nil {
			t.Fatal(err)
		}
		if err := r.api.Exit("a", "main", 0); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(log); err != nil || string(text) != "last words\n" {
			t.Errorf("the rest of the log is %q: %v", text, err)
		}
	})
}

// A log that is followed ends with the run of the container, as the kubelet's does, also
// where the next run has begun by the time that it is noticed. The last lines of the run
// are not lost.
func TestFollowEndsWithTheRun(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, newPod("a"))
		log, err := r.GetContainerLogs(t.Context(), "default", "a", "main", api.ContainerLogOpts{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		time.Sleep(11 * time.Second)
		if err := r.api.Print("a", "main", "last words"); err != nil {
			t.Fatal(err)
		}
		if err := r.api.Exit("a", "main", 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Minute)
			_ = r.api.Print("a", "main", "of the next run")
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = log.Close() })()
		text, err := io.ReadAll(log)
		if err != nil || strings.Count(string(text), "last words\n") != 1 || strings.Contains(string(text), "of the next run") {
			t.Errorf("the log is %q: %v", text, err)
		}
		time.Sleep(time.Minute)
	})
}

// One that waits to be started again has ended.
func TestFollowOfAContainerThatCrashesEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.create(t, newPod("a"))
		log, err := r.GetContainerLogs(t.Context(), "default", "a", "main", api.ContainerLogOpts{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if err := r.api.Print("a", "main", "last words"); err != nil {
			t.Fatal(err)
		}
		r.crashLoop(t)
		if text, err := io.ReadAll(log); err != nil || string(text) != "container main started\nlast words\n" {
			t.Errorf("the log is %q: %v", text, err)
		}
	})
}

// Calls for logs are throttled early: the API allows 500 a minute of the whole account.
func TestFollowRespectsThrottling(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		pod := newPod("a")
		pod.Spec.RestartPolicy = "Never"
		r.create(t, pod)
		r.refuse("DescribeContainerLog", 6, http.StatusBadRequest, "Throttling.User", "wait")
		log, err := r.GetContainerLogs(t.Context(), "default", "a", "main", api.ContainerLogOpts{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		time.Sleep(15 * time.Second)
		if err := r.api.Print("a", "main", "last words"); err != nil {
			t.Fatal(err)
		}
		if err := r.api.Exit("a", "main", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(14 * time.Second)
		if calls := r.api.Calls("DescribeContainerLog"); calls != 2 {
			t.Errorf("in 29 seconds of throttling there were %d calls, want two: the silence doubles", calls)
		}
		if text, err := io.ReadAll(log); err != nil || string(text) != "container main started\nlast words\n" {
			t.Errorf("the log is %q: %v", text, err)
		}
	})
}

func TestFollowEndsWhenTheReaderIsClosed(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	log, err := r.GetContainerLogs(t.Context(), "default", "a", "main", api.ContainerLogOpts{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Read(make([]byte, 1)); err == nil {
		t.Error("a closed log can be read")
	} // TestMain reports goroutines that are left running
}

// streams is an api.AttachIO.
type streams struct {
	in       io.Reader
	out, err buffer
	tty      bool
	sizes    chan api.TermSize
}

type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

func (s *streams) Stdin() io.Reader            { return s.in }
func (s *streams) Stdout() io.WriteCloser      { return &s.out }
func (s *streams) Stderr() io.WriteCloser      { return &s.err }
func (s *streams) TTY() bool                   { return s.tty }
func (s *streams) Resize() <-chan api.TermSize { return s.sizes }

func (r *rig) exec(ctx context.Context, s *streams, cmd ...string) error {
	if s.sizes == nil {
		s.sizes = make(chan api.TermSize, 1)
	}
	defer close(s.sizes)
	return r.RunInContainer(ctx, "default", "a", "main", cmd, s)
}

func TestExec(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	s := &streams{}
	if err := r.exec(t.Context(), s, "sh", "-c", "echo out; echo err >&2"); err != nil || s.out.String() != "out\n" || s.err.String() != "err\n" {
		t.Errorf("the command prints %q and %q: %v", s.out.String(), s.err.String(), err)
	}
	sent := strings.Repeat("0123456789\n", 10000)
	s = &streams{in: strings.NewReader(sent)}
	if err := r.exec(t.Context(), s, "cat"); err != nil || s.out.String() != sent {
		t.Errorf("of %d bytes %d come back: %v", len(sent), s.out.Len(), err)
	}
	s = &streams{tty: true}
	if err := r.exec(t.Context(), s, "sh", "-c", "echo out; echo err >&2"); err != nil || s.out.String() != "out\r\nerr\r\n" {
		t.Errorf("on a terminal the command prints %q: %v", s.out.String(), err)
	}
	s = &streams{tty: true, sizes: make(chan api.TermSize, 1)}
	s.sizes <- api.TermSize{Width: 120, Height: 40}
	if err := r.exec(t.Context(), s, "size"); err != nil || !strings.Contains(s.out.String(), "120") {
		t.Errorf("the size of the terminal is %q: %v", s.out.String(), err)
	}
	exit, ok := r.exec(t.Context(), &streams{}, "sh", "-c", "exit 3").(utilexec.ExitError)
	if !ok || exit.ExitStatus() != 3 {
		t.Errorf("a command that ends with 3 gives %v", exit)
	}
}

// A command whose status is not received has not succeeded.
func TestExecWithoutAStatus(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	s := &streams{}
	if err := r.exec(t.Context(), s, "vanish", "hello"); !errdefs.IsUnavailable(err) || s.out.String() != "hello\n" {
		t.Errorf("it prints %q: %v", s.out.String(), err)
	}
}

// A command that ends before its input does not wait for it. What reads the input ends with
// the stream, which the API closes when the handler returns: TestMain reports goroutines
// that are left running.
func TestExecEndsBeforeItsInput(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	in, out := io.Pipe()
	s := &streams{in: in}
	if err := r.exec(t.Context(), s, "sh", "-c", "echo out"); err != nil || s.out.String() != "out\n" {
		t.Errorf("the command prints %q: %v", s.out.String(), err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestExecEndsWithItsClient(t *testing.T) {
	r := newRig(t, 0)
	r.create(t, newPod("a"))
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(out, "hello")
		cancel()
	}()
	if err := r.exec(ctx, &streams{in: in}, "cat"); err == nil {
		t.Error("a command whose client has gone has ended well")
	}
}

func TestExecThatCannotBe(t *testing.T) {
	r := newRig(t, time.Hour)
	r.create(t, newPod("a"))
	if err := r.RunInContainer(t.Context(), "default", "a", "nobody", []string{"true"}, &streams{}); !errdefs.IsNotFound(err) {
		t.Errorf("in a container that there is not: %v", err)
	}
	if err := r.RunInContainer(t.Context(), "default", "a", "main", []string{"true"}, &streams{}); !errdefs.IsConflict(err) {
		t.Errorf("in a container that waits: %v", err)
	}
	if err := r.RunInContainer(t.Context(), "default", "b", "main", []string{"true"}, &streams{}); !errdefs.IsNotFound(err) {
		t.Errorf("in a pod that there is not: %v", err)
	}
}
