package podlifecycle

import (
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vklogrus "github.com/virtual-kubelet/virtual-kubelet/log/logrus"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

func TestLateLogger(t *testing.T) {
	var j journal
	of := func(level slog.Level) log.Logger {
		handler := slog.NewJSONHandler(&j, &slog.HandlerOptions{Level: level, AddSource: true})
		pod := aPod("web")
		pod.UID = "u1"
		return loggerOf(vkslog.FromSlog(slog.New(handler)), pod).WithField("phase", "Running")
	}
	of(slog.LevelInfo).Debug("not written")
	of(slog.LevelInfo).Debugf("not %s", "written")
	_, _, here, _ := runtime.Caller(0)
	of(slog.LevelInfo).Info("written")
	of(slog.LevelDebug).Debugf("writ%s", "ten")
	of(slog.LevelDebug).WithFields(log.Fields{"a": 1}).Warn("written")
	log.WithCallerSkip(of(slog.LevelDebug), 0).WithError(io.EOF).Errorf("written")
	lines := j.lines(t)
	if len(lines) != 4 {
		t.Fatalf("got %d lines, want 4: %v", len(lines), lines)
	}
	for i, line := range lines {
		if line["msg"] != "written" || line["namespace"] != "default" || line["pod"] != "web" || line["uid"] != "u1" || line["phase"] != "Running" {
			t.Errorf("line %d is %v", i, line)
		}
		source := line["source"].(map[string]any)
		if filepath.Base(source["file"].(string)) != "latelogger_test.go" || source["line"] != float64(here+1+i) {
			t.Errorf("line %d comes from %v:%v, want this file's line %d", i, source["file"], source["line"], here+1+i)
		}
	}
}

// A debug line that is not written costs no fields.
func TestLateLoggerMakesNoFieldsForDebugLines(t *testing.T) {
	logger := loggerOf(vkslog.FromSlog(slog.New(slog.NewTextHandler(io.Discard, nil))), aPod("web")).(*lateLogger)
	logger.WithField("action", "create").Debug("Acting on pod")
	if logger.made != nil {
		t.Error("its fields were put together")
	}
}

// A logger that cannot skip callers names the right one all the same.
func TestLoggerOfCallerIsTheCaller(t *testing.T) {
	var j journal
	entries := logrus.New()
	entries.SetOutput(&j)
	entries.SetReportCaller(true)
	entries.SetFormatter(&logrus.JSONFormatter{})
	loggerOf(vklogrus.FromLogrus(logrus.NewEntry(entries)), aPod("web")).WithField("phase", "Running").Info("written")
	line := j.lines(t)[0]
	if file := filepath.Base(line["file"].(string)); line["pod"] != "web" || !strings.HasPrefix(file, "latelogger_test.go:") {
		t.Errorf("the line is %v", line)
	}
}
