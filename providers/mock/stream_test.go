package mock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

type logOpts = api.ContainerLogOpts

// output is a buffer for several goroutines.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) Close() error { return nil }

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// streams is an api.AttachIO.
type streams struct {
	in       io.Reader
	out, err output
	tty      bool
}

func newStreams(in string) *streams { return &streams{in: strings.NewReader(in)} }

func (s *streams) Stdin() io.Reader            { return s.in }
func (s *streams) Stdout() io.WriteCloser      { return &s.out }
func (s *streams) Stderr() io.WriteCloser      { return &s.err }
func (s *streams) TTY() bool                   { return s.tty }
func (s *streams) Resize() <-chan api.TermSize { return nil }

// deaf has no streams at all.
type deaf struct{ streams }

func (*deaf) Stdin() io.Reader       { return nil }
func (*deaf) Stdout() io.WriteCloser { return nil }
func (*deaf) Stderr() io.WriteCloser { return nil }

func TestExec(t *testing.T) {
	p := newProvider(t, mock.Config{})
	mustCreate(t, p, newPod("p"))
	for _, tc := range []struct {
		cmd          []string
		in, out, err string
		code         int
		tty          bool
	}{
		{cmd: []string{"echo", "a", "b"}, out: "a b\n"},
		{cmd: []string{"/bin/echo", "a"}, out: "a\n"},
		{cmd: []string{"echo", "a"}, out: "a\r\n", tty: true},
		{cmd: []string{"exit", "3"}, code: 3},
		{cmd: []string{"exit"}},
		{cmd: []string{"sh", "-c", "exit 7"}, code: 7},
		{cmd: []string{"/bin/sh", "-c", "exit 0"}},
		{cmd: []string{"sh", "-c", "echo 'a b'; echo no >&2; exit 1; echo c"}, out: "a b\n", err: "no\n", code: 1},
		{cmd: []string{"cat"}, in: "some\ninput", out: "some\ninput"},
		{cmd: []string{"cat", "/etc/hosts"}, out: "cat /etc/hosts\n"},
		{cmd: []string{"ls", "-l", "/"}, out: "ls -l /\n"},
		{cmd: []string{"false"}, code: 1},
		{cmd: []string{"true"}},
		{cmd: []string{"sh"}, in: "echo hi\nexit 4\necho never\n", out: "hi\n", code: 4},
		{cmd: []string{"sh"}, in: "echo hi\n", out: "$ hi\r\n$ ", tty: true},
	} {
		s := newStreams(tc.in)
		s.tty = tc.tty
		err := p.RunInContainer(ctx, "ns", "p", "c", tc.cmd, s)
		code := 0
		if exit, ok := errors.AsType[utilexec.CodeExitError](err); ok {
			code = exit.ExitStatus()
		} else if err != nil {
			t.Errorf("%q: %v", tc.cmd, err)
		}
		if code != tc.code || s.out.String() != tc.out || s.err.String() != tc.err {
			t.Errorf("%q: code %d, out %q, err %q", tc.cmd, code, s.out.String(), s.err.String())
		}
	}
	if err := p.RunInContainer(ctx, "ns", "p", "c", nil, newStreams("")); !errdefs.IsInvalidInput(err) {
		t.Errorf("no command: %v", err)
	}
	if err := p.RunInContainer(ctx, "ns", "p", "none", []string{"echo"}, newStreams("")); !errdefs.IsNotFound(err) {
		t.Errorf("no container: %v", err)
	}
	if err := p.RunInContainer(ctx, "ns", "p", "c", []string{"cat"}, &deaf{}); err != nil {
		t.Errorf("no streams: %v", err)
	}
}

func TestExecNeedsARunningContainer(t *testing.T) {
	p := newProvider(t, mock.Config{StartDelay: time.Hour})
	mustCreate(t, p, newPod("p"))
	if err := p.RunInContainer(ctx, "ns", "p", "c", []string{"echo"}, newStreams("")); !errdefs.IsConflict(err) {
		t.Errorf("got %v", err)
	}
}

func TestExecEndsWithTheClientOrThePod(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p"))
		for name, end := range map[string]func(context.CancelFunc){
			"client": func(cancel context.CancelFunc) { cancel() },
			"pod":    func(context.CancelFunc) { _ = p.DeletePod(ctx, newPod("p")) },
		} {
			if name == "pod" {
				_ = p.DeletePod(ctx, newPod("p"))
				mustCreate(t, p, newPod("p"))
			} else if _, err := p.GetPod(ctx, "ns", "p"); err != nil {
				mustCreate(t, p, newPod("p"))
			}
			in, w := io.Pipe()
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() {
				ended <- p.RunInContainer(ctx, "ns", "p", "c", []string{"cat"}, &streams{in: in})
				in.Close() // as the API does
			}()
			synctest.Wait()
			end(cancel)
			synctest.Wait()
			select {
			case err := <-ended:
				if exit, ok := errors.AsType[utilexec.CodeExitError](err); name == "pod" && (!ok || exit.Code != 137) {
					t.Errorf("pod: %v", err)
				} else if name == "client" && !errors.Is(err, context.Canceled) {
					t.Errorf("client: %v", err)
				}
			default:
				t.Errorf("%s: still runs", name)
			}
			cancel()
			w.Close()
			synctest.Wait()
		}
	})
}

func TestAttach(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p"))
		in, w := io.Pipe()
		s := &streams{in: in}
		ended := make(chan error, 1)
		go func() { ended <- p.AttachToContainer(ctx, "ns", "p", "c", s) }()
		synctest.Wait()
		if _, err := io.WriteString(w, "hello\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if out := s.out.String(); !strings.HasPrefix(out, `mock container "c" of pod ns/p started`) || !strings.HasSuffix(out, "hello\n") {
			t.Errorf("printed %q", out)
		}
		w.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}

		watching := &deaf{}
		go func() { ended <- p.AttachToContainer(ctx, "ns", "p", "c", watching) }()
		synctest.Wait()
		if err := p.DeletePod(ctx, newPod("p")); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("end of the pod: %v", err)
		}
	})
}

func TestPortForward(t *testing.T) {
	p := newProvider(t, mock.Config{})
	mustCreate(t, p, newPod("p"))
	connect := func() (net.Conn, chan error) {
		client, server := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- p.PortForward(ctx, "ns", "p", 8080, server) }()
		return client, ended
	}

	client, ended := connect()
	for _, text := range []string{"ping", "GET / is not the beginning"} {
		if _, err := io.WriteString(client, text); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(client, got); err != nil || string(got) != text {
			t.Errorf("echo of %q is %q, %v", text, got, err)
		}
	}
	client.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	client, ended = connect()
	httpClient := &http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return client, nil },
		DisableKeepAlives: true,
	}}
	response, err := httpClient.Get("http://pod/some/path")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK || string(body) != "mock pod ns/p, port 8080: GET /some/path\n" {
		t.Errorf("%d %q %v", response.StatusCode, body, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}

	client, ended = connect()
	if _, err := io.WriteString(client, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.DeletePod(ctx, newPod("p")); err != nil {
		t.Fatal(err)
	}
	<-ended
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the pod")
	}
}

func readLogs(t *testing.T, p *mock.Provider, opts logOpts) string {
	t.Helper()
	r, err := p.GetContainerLogs(ctx, "ns", "p", "c", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogs(t *testing.T) {
	const who = `mock container "c" of pod ns/p `
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		begin := time.Now()
		mustCreate(t, p, newPod("p", "ready-delay", "15s"))
		pass(25 * time.Second)
		all := who + "started\n" + who + "has been running for 10s\n" + who + "is ready\n" + who + "has been running for 20s\n"
		for name, tc := range map[string]struct {
			opts logOpts
			want string
		}{
			"all":         {logOpts{}, all},
			"tail":        {logOpts{Tail: 1}, who + "has been running for 20s\n"},
			"long tail":   {logOpts{Tail: 100}, all},
			"limit":       {logOpts{LimitBytes: 10}, all[:10]},
			"since":       {logOpts{SinceSeconds: 10}, who + "is ready\n" + who + "has been running for 20s\n"},
			"since time":  {logOpts{SinceTime: begin.Add(20 * time.Second)}, who + "has been running for 20s\n"},
			"timestamps":  {logOpts{Timestamps: true, Tail: 1}, "2000-01-01T00:00:20.000000000Z " + who + "has been running for 20s\n"},
			"no previous": {logOpts{SinceTime: begin.Add(time.Hour)}, ""},
		} {
			if got := readLogs(t, p, tc.opts); got != tc.want {
				t.Errorf("%s: got %q, want %q", name, got, tc.want)
			}
		}
		if _, err := p.GetContainerLogs(ctx, "ns", "p", "c", logOpts{Previous: true}); !errdefs.IsInvalidInput(err) {
			t.Errorf("previous: %v", err)
		}
		if _, err := p.GetContainerLogs(ctx, "ns", "p", "none", logOpts{}); !errdefs.IsNotFound(err) {
			t.Errorf("no container: %v", err)
		}
		mustCreate(t, p, newPod("waits", "start-delay", "1h"))
		if _, err := p.GetContainerLogs(ctx, "ns", "waits", "c", logOpts{}); !errdefs.IsInvalidInput(err) {
			t.Errorf("not started: %v", err)
		}
	})
}

// The log of one output stream: all lines are on Stdout, and Stderr ends when the
// container does.
func TestLogsOfAStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p", "run-for", "12s"))
		pass(time.Second)
		open := func(stream string, opts logOpts) io.ReadCloser {
			r, err := p.GetContainerLogStream(ctx, "ns", "p", "c", stream, opts)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		out := open("Stdout", logOpts{})
		defer out.Close()
		if text, err := io.ReadAll(out); string(text) != readLogs(t, p, logOpts{}) || err != nil {
			t.Errorf("Stdout: %q, %v", text, err)
		}
		begin := time.Now()
		silent := open("Stderr", logOpts{Follow: true, LimitBytes: 10})
		defer silent.Close()
		text, err := io.ReadAll(silent)
		// The log may be asked for in the moment in which the container ends, and a second later again.
		if took := time.Since(begin); len(text) > 0 || err != nil || took < 11*time.Second || took > 12*time.Second {
			t.Errorf("Stderr: %q, %v after %v", text, err, took)
		}
		if _, err := p.GetContainerLogStream(ctx, "ns", "p", "none", "Stderr", logOpts{}); !errdefs.IsNotFound(err) {
			t.Errorf("no container: %v", err)
		}
	})
}

// A log that is read seldom ends with its run, though others have begun since.
func TestFollowedLogEndsWithItsRun(t *testing.T) {
	const who = `mock container "c" of pod ns/p `
	for away, want := range map[time.Duration]string{
		14 * time.Second: who + "has been running for 10s\n" + who + "exited with code 0\n",
		time.Minute:      "",
	} {
		inBubble(t, func(t *testing.T) {
			p := newProvider(t, mock.Config{})
			mustCreate(t, p, newPod("p", "run-for", "12s"))
			pass(time.Second)
			r, err := p.GetContainerLogs(ctx, "ns", "p", "c", logOpts{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			const begin = who + "started\n" + who + "is ready\n"
			if _, err := io.ReadFull(r, make([]byte, len(begin))); err != nil {
				t.Fatal(err)
			}
			pass(away)
			if rest, err := io.ReadAll(r); string(rest) != want || err != nil {
				t.Errorf("after %v: %q, %v", away, rest, err)
			}
		})
	}
}

func TestLogsOfPreviousRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p", "run-for", "12s", "exit-code", "3"))
		pass(14 * time.Second)
		const who = `mock container "c" of pod ns/p `
		want := who + "started\n" + who + "is ready\n" + who + "has been running for 10s\n" + who + "exited with code 3\n"
		if got := readLogs(t, p, logOpts{Previous: true}); got != want {
			t.Errorf("previous: got %q", got)
		}
		if got := readLogs(t, p, logOpts{}); got != who+"started\n"+who+"is ready\n" {
			t.Errorf("current: got %q", got)
		}
	})
}

func TestLogOfALongLifeIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p"))
		pass(30 * 24 * time.Hour)
		if n := strings.Count(readLogs(t, p, logOpts{}), "\n"); n != 1002 {
			t.Errorf("%d lines", n)
		}
	})
}

func TestFollowLogs(t *testing.T) {
	const who = `mock container "c" of pod ns/p `
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p", "stop-delay", "1s"))
		pass(15 * time.Second)
		r, err := p.GetContainerLogs(ctx, "ns", "p", "c", logOpts{Follow: true, Tail: 1})
		if err != nil {
			t.Fatal(err)
		}
		var got output
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(&got, r)
			ended <- err
		}()
		pass(10 * time.Second)
		if err := p.DeletePod(ctx, newPod("p")); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := who + "has been running for 10s\n" + who + "has been running for 20s\n" + who + "exited with code 0\n"
		if got.String() != want {
			t.Errorf("got %q", got.String())
		}
	})
}

func TestFollowEndsWithContextCloseAndProvider(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p"))
		for name, tc := range map[string]struct {
			end  func(io.Closer, context.CancelFunc)
			want error
		}{
			"context": {func(_ io.Closer, cancel context.CancelFunc) { cancel() }, context.Canceled},
			"close":   {func(c io.Closer, _ context.CancelFunc) { _ = c.Close(); _ = c.Close() }, io.ErrClosedPipe},
		} {
			ctx, cancel := context.WithCancel(ctx)
			r, err := p.GetContainerLogs(ctx, "ns", "p", "c", logOpts{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, r)
				ended <- err
			}()
			synctest.Wait()
			tc.end(r, cancel)
			if err := <-ended; !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		r, err := p.GetContainerLogs(ctx, "ns", "p", "c", logOpts{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = p.Close() }()
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("provider: %v", err)
		}
	})
}
