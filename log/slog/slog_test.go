package slog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

type line struct {
	Level, Msg, Node, Pod, Error string
	N                            int
	Source                       struct {
		File string
		Line int
	}
}

func newLogger(t *testing.T, level slog.Level) (*slog.Logger, func() line) {
	t.Helper()
	var buf bytes.Buffer
	l := slog.New(slog.NewJSONHandler(&buf, &slog.HandlerOptions{AddSource: true, Level: level}))
	return l, func() (got line) {
		t.Helper()
		if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
			t.Fatalf("not one JSON line: %q: %v", buf.String(), err)
		}
		buf.Reset()
		return got
	}
}

func TestLevelsAndFields(t *testing.T) {
	l, next := newLogger(t, slog.LevelDebug)
	logger := vkslog.FromSlog(l.With("node", "vk")).
		WithField("pod", "ns/p").WithFields(log.Fields{"n": 1}).WithError(errors.New("boom"))
	for name, tc := range map[string]struct {
		write func()
		level string
	}{
		"Debug":  {func() { logger.Debug("a", "b") }, "DEBUG"},
		"Debugf": {func() { logger.Debugf("a%s", "b") }, "DEBUG"},
		"Info":   {func() { logger.Info("a", "b") }, "INFO"},
		"Infof":  {func() { logger.Infof("a%s", "b") }, "INFO"},
		"Warn":   {func() { logger.Warn("a", "b") }, "WARN"},
		"Warnf":  {func() { logger.Warnf("a%s", "b") }, "WARN"},
		"Error":  {func() { logger.Error("a", "b") }, "ERROR"},
		"Errorf": {func() { logger.Errorf("a%s", "b") }, "ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.write()
			got := next()
			if got.Level != tc.level || got.Msg != "ab" {
				t.Errorf("got %s %q", got.Level, got.Msg)
			}
			if got.Node != "vk" || got.Pod != "ns/p" || got.N != 1 || got.Error != "boom" {
				t.Errorf("fields are %+v", got)
			}
			if filepath.Base(got.Source.File) != "slog_test.go" {
				t.Errorf("source is %s, want this file", got.Source.File)
			}
		})
	}
}

func TestSourceLine(t *testing.T) {
	l, next := newLogger(t, slog.LevelInfo)
	logger := vkslog.FromSlog(l)
	_, _, here, _ := runtime.Caller(0)
	logger.Info("x")
	if got := next().Source.Line; got != here+1 {
		t.Errorf("line %d, want %d", got, here+1)
	}
	wrapped(log.WithCallerSkip(logger, 1))
	if got := next().Source.Line; got != here+5 {
		t.Errorf("line %d, want %d", got, here+5)
	}
}

//go:noinline
func wrapped(logger log.Logger) { logger.Infof("wrapped") }

// unprintable fails the test when it is formatted.
type unprintable struct{ t *testing.T }

func (u unprintable) String() string {
	u.t.Error("formatted though the level is off")
	return ""
}

func TestNoFormattingBelowTheLevel(t *testing.T) {
	l := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
	logger := vkslog.FromSlog(l).WithField("a", unprintable{t}).WithFields(log.Fields{"b": unprintable{t}})
	logger.Debug(unprintable{t})
	logger.Infof("%s", unprintable{t})
	logger.Warn(unprintable{t})
}

// Loggers that are made of the same one do not get at each other's fields.
func TestFieldsAreNotShared(t *testing.T) {
	l, next := newLogger(t, slog.LevelInfo)
	base := vkslog.FromSlog(l).WithField("node", "vk").WithFields(log.Fields{"n": 1, "error": "none"})
	one, other := base.WithField("pod", "one"), base.WithField("pod", "other")
	_ = base.WithFields(log.Fields{"pod": "third"})
	for want, logger := range map[string]log.Logger{"one": one, "other": other, "": base} {
		logger.Info("x")
		if got := next(); got.Pod != want || got.Node != "vk" || got.N != 1 || got.Error != "none" {
			t.Errorf("%q: fields are %+v", want, got)
		}
	}
}

func TestNilLogger(t *testing.T) {
	if vkslog.FromSlog(nil) == nil {
		t.Error("no logger")
	}
}

// TestFatal runs itself again as the process that ends.
func TestFatal(t *testing.T) {
	const mode = "SLOG_TEST_FATAL"
	if which := os.Getenv(mode); which != "" {
		level := slog.LevelDebug
		if which == "off" {
			level = vkslog.LevelFatal + 1
		}
		l := vkslog.FromSlog(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{AddSource: true, Level: level})))
		if which == "Fatalf" {
			l.Fatalf("the %s", "end")
		}
		l.Fatal("the end")
		os.Exit(0)
	}
	for _, which := range []string{"Fatal", "Fatalf", "off"} {
		var stderr bytes.Buffer
		cmd := exec.Command(os.Args[0], "-test.run=^TestFatal$")
		cmd.Env = append(os.Environ(), mode+"="+which)
		cmd.Stderr = &stderr
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: %v, want exit status 1", which, err)
		}
		if which == "off" {
			continue
		}
		var got line
		if err := json.Unmarshal(stderr.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Level != "ERROR+4" || got.Msg != "the end" || filepath.Base(got.Source.File) != "slog_test.go" {
			t.Errorf("%s logged %+v", which, got)
		}
	}
}

// JSON with a name twice is refused by some readers, and others take the first value.
func TestEachFieldIsThereOnce(t *testing.T) {
	var buf bytes.Buffer
	logger := vkslog.FromSlog(slog.New(slog.NewJSONHandler(&buf, nil)))
	logger.WithField("node", "a").WithField("pod", "web").WithFields(log.Fields{"node": "b", "x": 1}).WithField("node", "c").Info("line")
	if got := buf.String(); strings.Count(got, `"node"`) != 1 || !strings.Contains(got, `"pod":"web","x":1,"node":"c"`) {
		t.Errorf("got %s", got)
	}
}
