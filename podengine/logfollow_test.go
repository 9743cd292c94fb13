package podengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// logFile is a log that a test writes.
type logFile struct {
	t    *testing.T
	path string
}

func newLogFile(t *testing.T) logFile { return logFile{t, filepath.Join(t.TempDir(), "0.log")} }

func (f logFile) write(text string) {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func line(text string) string { return "2000-01-01T00:00:00Z stdout F " + text + "\n" }

// collect reads a log to its end in the background.
type collected struct {
	text []byte
	err  error
	done chan struct{}
}

func collect(r io.Reader) *collected {
	c := &collected{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.text, c.err = io.ReadAll(r)
	}()
	return c
}

// A followed log has what comes later, also to a file that takes its place, and ends
// when the container has, with all that was written until then.
func TestFollowedLogGoesThroughRotations(t *testing.T) {
	f := newLogFile(t)
	synctest.Test(t, func(t *testing.T) {
		f.write(line("one"))
		var ended atomic.Bool
		l, err := followLog(t.Context(), f.path, "", &logs.LogOptions{}, func(context.Context) (bool, error) { return !ended.Load(), nil })
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got := collect(l)
		pause := func() { time.Sleep(3 * time.Second); synctest.Wait() }
		pause()
		f.write("2000-01-01T00:00:00Z stdout P two, ")
		pause()
		f.write("in parts\n2000-01-01T00:00:00Z stdout F of a line\n")
		pause()
		if err := os.Rename(f.path, f.path+".old"); err != nil {
			t.Fatal(err)
		}
		old := logFile{t, f.path + ".old"}
		old.write(line("three, after the name was taken"))
		pause()
		old.write(line("four, at the last moment"))
		f.write(line("five"))
		pause()
		f.write("damaged\n" + line("six"))
		ended.Store(true)
		<-got.done
		want := "one\ntwo, in partsof a line\nthree, after the name was taken\nfour, at the last moment\nfive\nsix\n"
		if got.err != nil || string(got.text) != want {
			t.Errorf("got %q, %v\nwant %q", got.text, got.err, want)
		}
	})
}

func TestPartsOfAFollowedLog(t *testing.T) {
	f := newLogFile(t)
	f.write("2000-01-01T00:00:00Z stdout F out 1\n2000-01-01T00:00:01.5Z stderr F err 1\n2000-01-01T00:00:02Z stdout P:x out 2\n" +
		`{"log":"docker\n","stream":"stdout","time":"2000-01-01T00:00:03Z"}` + "\n")
	for name, c := range map[string]struct {
		stream string
		opts   logs.LogOptions
		want   string
	}{
		"all":         {"", logs.LogOptions{}, "out 1\nerr 1\nout 2docker\n"},
		"stdout":      {corev1.LogStreamStdout, logs.LogOptions{}, "out 1\nout 2docker\n"},
		"stderr":      {corev1.LogStreamStderr, logs.LogOptions{}, "err 1\n"},
		"tail":        {"", logs.LogOptions{TailLines: ptr.To[int64](2)}, "out 2docker\n"},
		"long tail":   {"", logs.LogOptions{TailLines: ptr.To[int64](9)}, "out 1\nerr 1\nout 2docker\n"},
		"limit":       {"", logs.LogOptions{LimitBytes: ptr.To[int64](8)}, "out 1\ner"},
		"since":       {"", logs.LogOptions{Since: time.Date(2000, 1, 1, 0, 0, 2, 0, time.UTC)}, "out 2docker\n"},
		"timestamped": {"", logs.LogOptions{Timestamp: true, TailLines: ptr.To[int64](3)}, "2000-01-01T00:00:01.500000000Z err 1\n2000-01-01T00:00:02.000000000Z out 2docker\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := followLog(t.Context(), f.path, c.stream, &c.opts, func(context.Context) (bool, error) { return false, nil })
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if got, err := io.ReadAll(l); err != nil || string(got) != c.want {
					t.Errorf("got %q, %v, want %q", got, err, c.want)
				}
			})
		})
	}
}

// Closing a log ends a Read that waits; a log that cannot be read on says so.
func TestFollowedLogThatBreaks(t *testing.T) {
	f := newLogFile(t)
	synctest.Test(t, func(t *testing.T) {
		f.write(line("one"))
		follow := func(running func(context.Context) (bool, error)) *followedLog {
			l, err := followLog(t.Context(), f.path, "", &logs.LogOptions{}, running)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := follow(func(context.Context) (bool, error) { return true, nil })
		got := collect(l)
		time.Sleep(time.Minute)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-got.done
		if string(got.text) != "one\n" || got.err == nil {
			t.Errorf("closed: %q, %v", got.text, got.err)
		}
		broken := errors.New("broken")
		l = follow(func(context.Context) (bool, error) { return false, broken })
		if text, err := io.ReadAll(l); string(text) != "one\n" || !errors.Is(err, broken) {
			t.Errorf("broken: %q, %v", text, err)
		}
		_ = l.Close()
		f.write(strings.Repeat("x", maxLogRecord+1))
		l = follow(func(context.Context) (bool, error) { return true, nil })
		if text, err := io.ReadAll(l); string(text) != "one\n" || err == nil {
			t.Errorf("a line without an end: %q, %v", text, err)
		}
		_ = l.Close()
	})
}

// A runtime that is away for a while, as at its restart, ends no log; one that cannot
// say for long what became of the container breaks it, and one that does not know it
// any more ends it.
func TestFollowedLogWhileTheRuntimeIsAway(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(makePod("a", never))
		logFile{t, r.runtime.newest("a").log}.write(line("one"))
		var readers []io.Closer
		defer func() {
			for _, reader := range readers {
				_ = reader.Close()
			}
		}()
		follow := func() *collected {
			reader, err := r.GetContainerLogs(r.ctx, "ns", "p", "a", api.ContainerLogOpts{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, reader)
			return collect(reader)
		}
		ended := func(c *collected) bool {
			select {
			case <-c.done:
				return true
			default:
				return false
			}
		}
		broken, first := errors.New("away"), follow()
		away := func(err error) {
			r.runtime.intercept(func(_ context.Context, call string) error {
				if strings.HasPrefix(call, "ContainerStatus") {
					return err
				}
				return nil
			})
		}
		away(broken)
		r.after(30 * time.Second)
		if ended(first) {
			t.Fatalf("half a minute ends it: %q, %v", first.text, first.err)
		}
		away(nil)
		r.after(30 * time.Second)
		away(broken)
		r.after(50 * time.Second)
		if ended(first) {
			t.Fatalf("two short failures count as one: %v", first.err)
		}
		r.after(time.Minute)
		if !ended(first) || !errors.Is(first.err, broken) || string(first.text) != "one\n" {
			t.Errorf("after a long failure: %q, %v", first.text, first.err)
		}
		away(nil)
		if more, err := r.logGoesOn(makePod("a"), "a", "an ID that the runtime does not know")(r.ctx); more || err != nil {
			t.Errorf("of a container that has gone: %v, %v", more, err)
		}
	})
}

// Watches of inotify are few on a host, and shared with every other process of the
// user: however many logs are followed, none is taken, and no goroutine.
func TestManyFollowedLogsTakeNoWatches(t *testing.T) {
	f := newLogFile(t)
	f.write(line("one"))
	const many = 300
	var all []*followedLog
	defer func() {
		for _, l := range all {
			_ = l.Close()
		}
	}()
	for range many {
		l, err := followLog(t.Context(), f.path, "", &logs.LogOptions{}, func(context.Context) (bool, error) { return true, nil })
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
		if n, err := l.Read(make([]byte, 100)); err != nil || n != len("one\n") {
			t.Fatal(n, err)
		}
	}
	f.write(line("two"))
	for i, l := range all {
		got := make([]byte, 100)
		if n, err := l.Read(got); err != nil || string(got[:n]) != "two\n" {
			t.Fatalf("log %d: %q, %v", i, got[:n], err)
		}
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err) // elsewhere there is no inotify
	}
	for _, entry := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && strings.Contains(to, "inotify") {
			t.Error(fmt.Sprint("there is an inotify instance: ", to))
		}
	}
}
