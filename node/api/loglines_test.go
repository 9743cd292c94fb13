package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// lineLog is a log whose lines appear at their times. It is complete at its end.
type lineLog struct {
	lines []api.LogLine
	end   time.Time
	page  int  // lines that it returns at once; 0: all
	whole bool // it does not know of since
}

func (l *lineLog) since(_ context.Context, since time.Time) (found []api.LogLine, err error) {
	now := time.Now()
	more := false
	for _, line := range l.lines {
		switch {
		case line.Time.After(now):
			more = true
		case !l.whole && line.Time.Before(since) && !line.Time.IsZero():
		case l.page > 0 && len(found) == l.page:
			return found, nil
		default:
			found = append(found, line)
		}
	}
	if !more && !now.Before(l.end) {
		err = io.EOF
	}
	return found, err
}

func readLines(t *testing.T, l *lineLog, opts api.ContainerLogOpts) string {
	t.Helper()
	r := api.NewLogReader(t.Context(), opts, l.since)
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogReader(t *testing.T) {
	for name, test := range map[string]struct {
		opts       api.ContainerLogOpts
		want       string
		timestamps bool
	}{
		"all":                          {want: "a b c d e"},
		"tail":                         {opts: api.ContainerLogOpts{Tail: 2}, want: "d e"},
		"longer tail":                  {opts: api.ContainerLogOpts{Tail: 9}, want: "a b c d e"},
		"limit":                        {opts: api.ContainerLogOpts{LimitBytes: 4}, want: "a b"},
		"limit within a line":          {opts: api.ContainerLogOpts{LimitBytes: 3}, want: "a b"},
		"since seconds":                {opts: api.ContainerLogOpts{SinceSeconds: 9}, want: "c d e"},
		"since time":                   {opts: api.ContainerLogOpts{SinceTime: start.Add(time.Second)}, want: "c d e"},
		"since later":                  {opts: api.ContainerLogOpts{SinceTime: start.Add(time.Hour)}},
		"tail and limit":               {opts: api.ContainerLogOpts{Tail: 2, LimitBytes: 2}, want: "d"},
		"tail and since":               {opts: api.ContainerLogOpts{Tail: 9, SinceTime: start.Add(time.Second)}, want: "c d e"},
		"follow":                       {opts: api.ContainerLogOpts{Follow: true}, want: "a b c d e f g h"},
		"follow from the tail":         {opts: api.ContainerLogOpts{Follow: true, Tail: 1}, want: "e f g h"},
		"follow from the tail, since":  {opts: api.ContainerLogOpts{Follow: true, Tail: 1, SinceTime: start.Add(time.Hour)}},
		"follow to a limit":            {opts: api.ContainerLogOpts{Follow: true, LimitBytes: 14}, want: "a b c d e f g"},
		"timestamps, since and follow": {opts: api.ContainerLogOpts{Follow: true, SinceSeconds: 9, Timestamps: true}, want: "c d e f g h", timestamps: true},
	} {
		for _, l := range []lineLog{{}, {whole: true}, {page: 4}} {
			t.Run(fmt.Sprintf("%s/%+v", name, l), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					// Two lines at one time, one without a time, and some to come.
					l.lines = []api.LogLine{
						{start, "a\n"}, {start, "b"}, {start.Add(time.Second), "c"}, {start.Add(time.Second), "d"}, {time.Time{}, "e"},
						{start.Add(12 * time.Second), "f"}, {start.Add(12 * time.Second), "g"}, {start.Add(20 * time.Second), "h"},
					}
					l.end = start.Add(22 * time.Second)
					time.Sleep(10 * time.Second)
					got := readLines(t, &l, test.opts)
					if test.timestamps {
						if !strings.HasPrefix(got, "2000-01-01T00:00:01.000000000Z c\n") || !strings.HasSuffix(got, "2000-01-01T00:00:20.000000000Z h\n") {
							t.Errorf("got %q", got)
						}
						got = stamps.ReplaceAllString(got, "")
					}
					if got = strings.Join(strings.Fields(got), " "); got != test.want {
						t.Errorf("got %q, want %q", got, test.want)
					}
				})
			})
		}
	}
}

var stamps = regexp.MustCompile(`(?m)^\S+ `)

// start is when virtual time begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A log without times is followed by the number of its lines.
func TestLogReaderWithoutTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := api.NewLogReader(t.Context(), api.ContainerLogOpts{Follow: true, Tail: 1}, func(context.Context, time.Time) ([]api.LogLine, error) {
			if asked++; asked == 4 {
				return []api.LogLine{{Text: "a"}, {Text: "b"}, {Text: "c"}}, io.EOF
			}
			return []api.LogLine{{Text: "a"}, {Text: "b"}}, nil
		})
		if text, err := io.ReadAll(r); string(text) != "b\nc\n" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		if since := time.Since(start); since != 3*time.Second {
			t.Errorf("it was asked for within %v", since)
		}
	})
	text := ""
	r := api.NewLogReader(t.Context(), api.ContainerLogOpts{}, func(context.Context, time.Time) (lines []api.LogLine, err error) {
		if text += "x"; len(text) > 1000 {
			return nil, errors.New("it has no end")
		}
		for i := range len(text) {
			lines = append(lines, api.LogLine{Text: text[:i+1]})
		}
		return lines, nil
	})
	if got, err := io.ReadAll(r); string(got) != "x\n" || err != nil {
		t.Errorf("a log that grows is %q, %v", got, err)
	}
}

// Of a log without times all lines are given, once each, also to a client that wants the newer
// ones only: when they were written is not known.
func TestLogReaderWithoutTimesSince(t *testing.T) {
	for name, opts := range map[string]api.ContainerLogOpts{
		"seconds": {SinceSeconds: 60}, "time": {SinceTime: start.Add(-time.Minute)}, "followed": {SinceSeconds: 60, Follow: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := api.NewLogReader(t.Context(), opts, func(context.Context, time.Time) (lines []api.LogLine, err error) {
					for i := range 1 + int(time.Since(start)/time.Second) {
						lines = append(lines, api.LogLine{Text: fmt.Sprint(i)})
					}
					if len(lines) == 3 {
						err = io.EOF
					}
					return lines, err
				})
				want := "0\n"
				if opts.Follow {
					want = "0\n1\n2\n"
				}
				if text, err := io.ReadAll(r); string(text) != want || err != nil {
					t.Errorf("got %q, %v, want %q", text, err, want)
				}
			})
		})
	}
}

// busyLog is the log of a container that writes a line each millisecond, so that there are new
// ones each time that it is asked for, which takes longer.
func busyLog(ctx context.Context, since time.Time) (found []api.LogLine, err error) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	at := start
	if since.After(at) {
		at = since.Truncate(time.Millisecond)
	}
	for now := time.Now(); !at.After(now) && len(found) < 5000; at = at.Add(time.Millisecond) {
		found = append(found, api.LogLine{Time: at, Text: at.Sub(start).String()})
	}
	return found, nil
}

// A container that never pauses keeps neither the log from its end, nor its last lines from
// being shown.
func TestLogReaderOfABusyContainer(t *testing.T) {
	for name, opts := range map[string]api.ContainerLogOpts{
		"all": {}, "tail": {Tail: 3}, "follow from the tail": {Tail: 3, Follow: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(10 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				r := api.NewLogReader(ctx, opts, busyLog)
				defer r.Close()
				if opts.Follow {
					line, err := bufio.NewReader(r).ReadString('\n')
					if at, _ := time.ParseDuration(strings.TrimSpace(line)); at < 9*time.Second || time.Since(start) > time.Minute {
						t.Errorf("the first line is %q, %v, after %v", line, err, time.Since(start))
					}
					return
				}
				text, err := io.ReadAll(r)
				lines := strings.Fields(string(text))
				if err != nil || len(lines) == 0 {
					t.Fatalf("got %q, %v", text, err)
				}
				if last, _ := time.ParseDuration(lines[len(lines)-1]); last < 10*time.Second || last > time.Minute {
					t.Errorf("the last line is that of %v", last)
				}
				if opts.Tail == 0 && len(lines) < 10_000 || opts.Tail > 0 && len(lines) != opts.Tail {
					t.Errorf("got %d lines", len(lines))
				}
			})
		})
	}
}

// To follow a container that never pauses costs a request each second, or as many as its lines
// need.
func TestLogReaderDoesNotFloodTheBackend(t *testing.T) {
	for page, most := range map[int]int{5000: 90, 100: 1000} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(10 * time.Second)
			asked := 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := api.NewLogReader(ctx, api.ContainerLogOpts{Follow: true}, func(ctx context.Context, since time.Time) ([]api.LogLine, error) {
				asked++
				lines, err := busyLog(ctx, since)
				return lines[:min(len(lines), page)], err
			})
			defer r.Close()
			text, _ := io.ReadAll(r)
			lines := strings.Fields(string(text))
			if last, _ := time.ParseDuration(lines[len(lines)-1]); last < 65*time.Second {
				t.Errorf("pages of %d: after 70 s the last line is that of %v", page, last)
			}
			if asked > most {
				t.Errorf("pages of %d: asked %d times", page, asked)
			}
		})
	}
}

// Lines of two streams may come in another order than their times; none is lost, and none
// shown twice.
func TestLogReaderOfLinesOutOfOrder(t *testing.T) {
	at := func(seconds int, text string) api.LogLine {
		return api.LogLine{Time: start.Add(time.Duration(seconds) * time.Second), Text: text}
	}
	synctest.Test(t, func(t *testing.T) {
		answers := [][]api.LogLine{
			{at(1, "a"), at(3, "c"), at(2, "b"), at(3, "d")},
			{at(3, "c"), at(2, "b"), at(3, "d"), at(5, "f"), at(4, "e"), at(3, "g")},
			{at(5, "f")},
		}
		r := api.NewLogReader(t.Context(), api.ContainerLogOpts{Follow: true}, func(context.Context, time.Time) ([]api.LogLine, error) {
			answer := answers[0]
			if answers = answers[1:]; len(answers) == 0 {
				return answer, io.EOF
			}
			return answer, nil
		})
		text, err := io.ReadAll(r)
		if got := strings.Join(strings.Fields(string(text)), " "); got != "a c b d f e g" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// What fails is no end of a log; what has been read before is returned.
func TestLogReaderFails(t *testing.T) {
	cause := errors.New("cause")
	r := api.NewLogReader(t.Context(), api.ContainerLogOpts{Tail: 3}, func(context.Context, time.Time) ([]api.LogLine, error) {
		return []api.LogLine{{Text: "a"}}, cause
	})
	if text, err := io.ReadAll(r); string(text) != "a\n" || err != cause {
		t.Errorf("got %q, %v", text, err)
	}
}

// A backend that has no log, or is away, is not an empty log that breaks off.
func TestFirstErrorOfALogReaderIsTheAnswer(t *testing.T) {
	asked := 0
	h := api.HandleContainerLogs(func(ctx context.Context, _, _, _ string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
		return api.NewLogReader(ctx, opts, func(context.Context, time.Time) ([]api.LogLine, error) {
			if asked++; asked == 1 {
				return nil, errdefs.NotFound("there is no log any more")
			}
			return []api.LogLine{{Time: time.Now(), Text: "hello"}}, io.EOF
		}), nil
	})
	get := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/containerLogs/ns/pod/c", nil)
		for name, value := range map[string]string{"namespace": "ns", "pod": "pod", "container": "c"} {
			r.SetPathValue(name, value)
		}
		w := httptest.NewRecorder()
		h(w, r)
		return w
	}
	if w := get(); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no log any more") {
		t.Errorf("the answer is %d %q", w.Code, w.Body)
	}
	if w := get(); w.Code != http.StatusOK || w.Body.String() != "hello\n" {
		t.Errorf("the answer is %d %q", w.Code, w.Body)
	}
}

func TestLogReaderEndsWithContextAndClose(t *testing.T) {
	for want, end := range map[error]func(io.Closer, context.CancelFunc){
		context.Canceled: func(_ io.Closer, cancel context.CancelFunc) { cancel() },
		io.ErrClosedPipe: func(c io.Closer, _ context.CancelFunc) { _ = c.Close(); _ = c.Close() },
	} {
		for name, lines := range map[string]api.LogLinesFunc{
			"which waits": func(context.Context, time.Time) ([]api.LogLine, error) { return nil, nil },
			"which asks": func(ctx context.Context, _ time.Time) ([]api.LogLine, error) {
				<-ctx.Done()
				return nil, errors.New("broken off")
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := api.NewLogReader(ctx, api.ContainerLogOpts{Follow: true}, lines)
				defer r.Close()
				ended := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, r)
					ended <- err
				}()
				synctest.Wait()
				end(r, cancel)
				if err := <-ended; err != want {
					t.Errorf("%s: got %v, want %v", name, err, want)
				}
			})
		}
	}
}
