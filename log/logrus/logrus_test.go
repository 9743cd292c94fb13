package logrus_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vklogrus "github.com/virtual-kubelet/virtual-kubelet/log/logrus"
)

func newLogger(t *testing.T) (*logrus.Logger, func() map[string]any) {
	t.Helper()
	var buf bytes.Buffer
	l := logrus.New()
	l.SetOutput(&buf)
	l.SetLevel(logrus.DebugLevel)
	l.SetFormatter(&logrus.JSONFormatter{})
	return l, func() map[string]any {
		t.Helper()
		line := map[string]any{}
		if err := json.Unmarshal(buf.Bytes(), &line); err != nil {
			t.Fatalf("not one JSON line: %q: %v", buf.String(), err)
		}
		buf.Reset()
		return line
	}
}

func TestLevelsAndFields(t *testing.T) {
	l, line := newLogger(t)
	logger := vklogrus.FromLogrus(l.WithField("node", "vk")).
		WithField("pod", "ns/p").WithFields(log.Fields{"n": 1}).WithError(errors.New("boom"))
	for level, write := range map[string]func(){
		"debug":   func() { logger.Debug("a", "b") },
		"info":    func() { logger.Infof("a%s", "b") },
		"warning": func() { logger.Warn("ab") },
		"error":   func() { logger.Errorf("a%c", 'b') },
	} {
		write()
		got := line()
		for key, want := range map[string]any{
			"level": level, "msg": "ab", "node": "vk", "pod": "ns/p", "n": 1.0, "error": "boom",
		} {
			if got[key] != want {
				t.Errorf("%s: %s is %v, want %v", level, key, got[key], want)
			}
		}
	}
}

func TestFieldsDoNotLeakIntoTheParent(t *testing.T) {
	l, line := newLogger(t)
	parent := vklogrus.FromLogrus(logrus.NewEntry(l))
	_ = parent.WithField("pod", "p")
	parent.Info("x")
	if _, ok := line()["pod"]; ok {
		t.Error("the parent has the child's field")
	}
}

func TestCaller(t *testing.T) {
	l, line := newLogger(t)
	l.SetReportCaller(true)
	vklogrus.FromLogrus(logrus.NewEntry(l)).WithField("a", 1).Info("x")
	file, _ := line()["file"].(string)
	if name := filepath.Base(file); len(name) < 14 || name[:14] != "logrus_test.go" {
		t.Errorf("caller is %q, want this file", file)
	}
}

func TestFatalExits(t *testing.T) {
	l, line := newLogger(t)
	code := -1
	l.ExitFunc = func(c int) { code = c }
	vklogrus.FromLogrus(logrus.NewEntry(l)).Fatal("the end")
	if code != 1 || line()["msg"] != "the end" {
		t.Errorf("exit code %d, want 1", code)
	}
}

func TestNilEntry(t *testing.T) {
	if vklogrus.FromLogrus(nil) == nil {
		t.Error("no logger")
	}
}
