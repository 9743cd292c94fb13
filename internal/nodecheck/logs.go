package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

var logChecks = []Check{
	{Name: "logs", Title: "the log of a container that runs can be read, and limited", Needs: []Capability{Logs}, run: checkLogs},
	{Name: "logs-unknown-container", Title: "the log of a container that there is not is an error that says so", Needs: []Capability{Logs}, run: checkLogsUnknown},
	{Name: "logs-content", Title: "a log is all that a container has printed, or the part that was asked for", Needs: []Capability{Logs, Commands}, run: checkLogsContent},
	{Name: "logs-since", Title: "a log can be had from a time on", Needs: []Capability{Logs, Commands}, run: checkLogsSince},
	{Name: "logs-follow", Title: "a log that is followed has all lines, and ends with the container", Needs: []Capability{Logs, Commands}, run: checkLogsFollow},
	{Name: "logs-previous", Title: "the log of the run before can be read", Needs: []Capability{Logs, Commands, Restarts}, run: checkLogsPrevious},
}

// logs returns a log, to its end.
func (n *Node) logs(ctx context.Context, pod *corev1.Pod, options corev1.PodLogOptions) (string, error) {
	return n.logsOnce(ctx, pod, options, func(context.Context) error { return nil })
}

// logsOnce is logs, and calls once as soon as the log is being read: a log that is followed
// has all that comes then, however soon the pod is gone.
func (n *Node) logsOnce(ctx context.Context, pod *corev1.Pod, options corev1.PodLogOptions, once func(context.Context) error) (string, error) {
	ctx, cancel := n.patient(ctx)
	defer cancel()
	stream, err := n.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	defer stream.Close()
	if err := once(ctx); err != nil {
		return "", err
	}
	text, err := io.ReadAll(stream)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s to its end, after %q: %w", pod.Name, text, err)
	}
	return string(text), nil
}

// eventuallyLogs reads a log until wanted is satisfied with it.
func (n *Node) eventuallyLogs(ctx context.Context, pod *corev1.Pod, options corev1.PodLogOptions, wanted func(string) error) error {
	return n.Poll(ctx, func(ctx context.Context) error {
		text, err := n.logs(ctx, pod, options)
		if err != nil {
			return err
		}
		return wanted(text)
	})
}

// createSaying creates a pod, and waits until it runs and its log is this.
func (s *Scope) createSaying(ctx context.Context, pod *corev1.Pod, want string) (*corev1.Pod, error) {
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return nil, err
	}
	return pod, s.eventuallyLogs(ctx, pod, corev1.PodLogOptions{}, becomes("the log", want))
}

// settledLog is how long it may take until a log that is complete is answered as it should be,
// from the first answer on.
const settledLog = 10 * time.Second

// settling makes an error of wanted final once it lasts for settledLog. How long an answer
// takes does not count.
func settling(wanted func(string) error) func(string) error {
	var first time.Time
	return func(text string) error {
		err := wanted(text)
		if first.IsZero() {
			first = time.Now()
		}
		if err != nil && time.Since(first) >= settledLog {
			return final{err}
		}
		return err
	}
}

// becomes returns an error until a text, which grows, is what is wanted.
func becomes(what, want string) func(string) error {
	return func(text string) error {
		if text == want {
			return nil
		}
		err := fmt.Errorf("%s is %q, not %q", what, text, want)
		if !strings.HasPrefix(want, text) {
			return final{err}
		}
		return err
	}
}

func checkLogs(ctx context.Context, s *Scope) error {
	pod, err := s.createAnd(ctx, s.Pod(s.container("main", "echo one; echo two; echo three; "+stay)), "runs", Running)
	if err != nil {
		return err
	}
	if err := s.eventuallyLogs(ctx, pod, corev1.PodLogOptions{}, func(text string) error {
		if text == "" {
			return errors.New("the log is empty")
		}
		return nil
	}); err != nil {
		return lacking{err}
	}
	if err := s.eventuallyLogs(ctx, pod, corev1.PodLogOptions{TailLines: ptr.To[int64](1)}, func(text string) error {
		switch n := strings.Count(text, "\n"); {
		case n > 1:
			return final{fmt.Errorf("where the last line is asked for, the log is %q", text)}
		case n == 0:
			return fmt.Errorf("the last line is %q", text)
		}
		return nil
	}); err != nil {
		return err
	}
	text, err := s.logs(ctx, pod, corev1.PodLogOptions{LimitBytes: ptr.To[int64](3)})
	if err != nil {
		return err
	}
	if len(text) != 3 {
		return fmt.Errorf("the first 3 bytes are %q", text)
	}
	return nil
}

// checkLogsUnknown asks the API server, and the kubelet, which the API server
// would not ask.
func checkLogsUnknown(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	_, err = s.logs(ctx, pod, corev1.PodLogOptions{Container: unknownContainer})
	if err := refusal(err); err != nil {
		return fmt.Errorf("asked for the log of a container that there is not, the API server answers: %w", err)
	}
	_, err = s.GetFromKubelet(ctx, "/containerLogs/"+pod.Namespace+"/"+pod.Name+"/"+unknownContainer)
	if err := refusal(err); err != nil {
		return fmt.Errorf("asked for the log of a container that there is not, the kubelet answers: %w", err)
	}
	return nil
}

const unknownContainer = "nobody"

// refusal returns nil if an error is a clear one about unknownContainer.
func refusal(err error) error {
	switch code := statusCode(err); {
	case err == nil:
		return errors.New("without an error")
	case code == http.StatusNotImplemented:
		return err
	case code != http.StatusNotFound && code != http.StatusBadRequest:
		return fmt.Errorf("with status %d, neither 404 nor 400: %w", code, err)
	}
	return nil
}

func checkLogsContent(ctx context.Context, s *Scope) error {
	const all = "one\ntwo\nthree\n"
	pod, err := s.succeeds(ctx, s.job("echo one; echo two >&2; echo three"))
	if err != nil {
		return err
	}
	for i, c := range []struct {
		what    string
		options corev1.PodLogOptions
		wanted  func(string) bool
	}{
		{"all", corev1.PodLogOptions{}, func(text string) bool {
			return slices.Equal(slices.Sorted(strings.Lines(text)), slices.Sorted(strings.Lines(all))) // the two streams may overtake each other
		}},
		{"the last two lines", corev1.PodLogOptions{TailLines: ptr.To[int64](2)}, func(text string) bool { return strings.Count(text, "\n") == 2 }},
		{"the first five bytes", corev1.PodLogOptions{LimitBytes: ptr.To[int64](5)}, func(text string) bool { return len(text) == 5 }},
		{"with timestamps", corev1.PodLogOptions{Timestamps: true}, func(text string) bool { return strings.Count(text, "\n") == 3 && haveTimestamps(text) }},
	} {
		wanted := func(text string) error {
			if !c.wanted(text) {
				return fmt.Errorf("of a log of three lines, %s are %q", c.what, text)
			}
			return nil
		}
		if i > 0 { // now that all of it is there
			wanted = settling(wanted)
		}
		if err := s.eventuallyLogs(ctx, pod, c.options, wanted); err != nil {
			return err
		}
	}
	return nil
}

func haveTimestamps(text string) bool {
	for line := range strings.Lines(text) {
		stamp, _, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
			return false
		}
	}
	return true
}

// checkLogsSince has a container print a line, then be silent for a while, then
// print another: the first one is older than what is asked for.
func checkLogsSince(ctx context.Context, s *Scope) error {
	const half = 3 * time.Second // long enough for what a busy machine takes to record a line or an end
	pod, err := s.succeeds(ctx, s.job(fmt.Sprintf("echo old; sleep %d; echo new", int((2*half).Seconds()))))
	if err != nil {
		return err
	}
	t, err := terminated(pod, "main")
	if err != nil {
		return err
	}
	since := t.FinishedAt.DeepCopy()
	since.Time = since.Add(-half)
	return s.eventuallyLogs(ctx, pod, corev1.PodLogOptions{SinceTime: since}, becomes("the log from some seconds before the end on", "new\n"))
}

func checkLogsFollow(ctx context.Context, s *Scope) error {
	pod, err := s.createAnd(ctx, s.job("echo one; sleep 2; echo two; sleep 1; echo three"), "runs or has ended", begun)
	if err != nil {
		return err
	}
	text, err := s.logs(ctx, pod, corev1.PodLogOptions{Follow: true})
	if err != nil {
		return err
	}
	if text != "one\ntwo\nthree\n" {
		return fmt.Errorf("the log, followed to its end, is %q", text)
	}
	return nil
}

func checkLogsPrevious(ctx context.Context, s *Scope) error {
	pod := s.Pod(s.container("main", "echo I end with 1; exit 1"))
	pod, err := s.createAnd(ctx, pod, "is restarted", restarted(1))
	if err != nil {
		return err
	}
	return s.eventuallyLogs(ctx, pod, corev1.PodLogOptions{Previous: true}, func(text string) error {
		if text != "I end with 1\n" {
			return fmt.Errorf("the log of the run before is %q", text)
		}
		return nil
	})
}
