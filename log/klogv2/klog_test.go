package klogv2_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/log/klogv2"
)

var flags flag.FlagSet

func TestMain(m *testing.M) {
	klog.InitFlags(&flags)
	set("logtostderr", "false")
	set("stderrthreshold", "FATAL")
	os.Exit(m.Run())
}

func set(name, value string) {
	if err := flags.Set(name, value); err != nil {
		panic(err)
	}
}

// capture returns what klog writes while f runs. klog is one per process, so
// these tests cannot be parallel.
func capture(t *testing.T, f func()) string {
	t.Helper()
	state := klog.CaptureState()
	defer state.Restore()
	var buf bytes.Buffer
	klog.SetOutput(&buf)
	set("one_output", "true")
	f()
	klog.Flush()
	return buf.String()
}

var header = regexp.MustCompile(`^([DIWEF])\d{4} \S+ +\d+ ([^:]+):\d+\] (.*)\n`)

func TestLines(t *testing.T) {
	set("v", "4")
	defer set("v", "0")
	logger := klogv2.New(log.Fields{"node": "vk", "b": 2}).
		WithField("pod", "ns/p").WithFields(log.Fields{"d": time.Second}).WithError(errors.New("boom"))
	const fields = ` b=2 d="1s" node="vk" pod="ns/p"`
	for name, tc := range map[string]struct {
		write          func()
		severity, line string
	}{
		"Debug":  {func() { logger.Debug("a", "b") }, "I", `"ab"` + fields + ` err="boom"`},
		"Debugf": {func() { logger.Debugf("a%s", "b") }, "I", `"ab"` + fields + ` err="boom"`},
		"Info":   {func() { logger.Info("a", "b") }, "I", `"ab"` + fields + ` err="boom"`},
		"Infof":  {func() { logger.Infof("a%s", "b") }, "I", `"ab"` + fields + ` err="boom"`},
		"Warn":   {func() { logger.Warn("a", "b") }, "W", `"ab"` + fields + ` err="boom"`},
		"Warnf":  {func() { logger.Warnf("a%s", "b") }, "W", `"ab"` + fields + ` err="boom"`},
		"Error":  {func() { logger.Error("a", "b") }, "E", `"ab" err="boom"` + fields},
		"Errorf": {func() { logger.Errorf("a%s", "b") }, "E", `"ab" err="boom"` + fields},
	} {
		t.Run(name, func(t *testing.T) {
			out := capture(t, tc.write)
			m := header.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("no klog line: %q", out)
			}
			if m[1] != tc.severity || m[3] != tc.line {
				t.Errorf("got %s %s, want %s %s", m[1], m[3], tc.severity, tc.line)
			}
			if m[2] != "klog_test.go" {
				t.Errorf("caller is %s, want this file", m[2])
			}
		})
	}
}

func TestCallerLine(t *testing.T) {
	out := capture(t, func() {
		klog.Info("here") // The next line must name the next line.
		klogv2.New(nil).Info("there")
		wrapped(log.WithCallerSkip(klogv2.New(nil), 1))
	})
	var lines []int
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var n int
		if _, err := fmt.Sscanf(line[strings.Index(line, ".go:")+4:], "%d", &n); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, n)
	}
	if len(lines) != 3 || lines[1] != lines[0]+1 || lines[2] != lines[0]+2 {
		t.Errorf("lines %v:\n%s", lines, out)
	}
}

//go:noinline
func wrapped(logger log.Logger) { logger.Info("wrapped") }

func TestDebugIsOffByDefault(t *testing.T) {
	out := capture(t, func() {
		klogv2.New(nil).Debug("x")
		klogv2.New(nil).Debugf("%s", unprintable{t})
	})
	if out != "" {
		t.Errorf("wrote %q", out)
	}
}

// unprintable fails the test when it is formatted.
type unprintable struct{ t *testing.T }

func (u unprintable) String() string {
	u.t.Error("formatted though the level is off")
	return ""
}

func TestFieldsAreCopied(t *testing.T) {
	fields := log.Fields{"a": 1}
	parent := klogv2.New(fields)
	fields["a"] = 2
	_ = parent.WithField("b", 3)
	_ = parent.WithError(errors.New("x"))
	out := capture(t, func() { parent.Info("x") })
	if !strings.HasSuffix(out, "] \"x\" a=1\n") {
		t.Errorf("wrote %q", out)
	}
}

func TestFatalExits(t *testing.T) {
	exit := klog.OsExit
	defer func() { klog.OsExit = exit }()
	for name, fatal := range map[string]func(log.Logger){
		"Fatal":  func(l log.Logger) { l.Fatal("the end") },
		"Fatalf": func(l log.Logger) { l.Fatalf("the %s", "end") },
	} {
		code := -1
		klog.OsExit = func(c int) { code = c }
		out := capture(t, func() { fatal(klogv2.New(log.Fields{"a": "b"})) })
		if m := header.FindStringSubmatch(out); m == nil || m[1] != "F" || m[2] != "klog_test.go" || m[3] != `"the end" a="b"` {
			t.Errorf("%s wrote %.200q", name, out)
		}
		if code <= 0 {
			t.Errorf("%s: exit code %d", name, code)
		}
	}
}
