package log_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

func TestContextWins(t *testing.T) {
	var buf bytes.Buffer
	logger := vkslog.FromSlog(slog.New(slog.NewTextHandler(&buf, nil)))
	ctx := log.WithLogger(context.Background(), logger)
	if got := log.G(ctx); got != logger {
		t.Errorf("got %v, want the context's", got)
	}
	if got := log.GetLogger(context.Background()); got != log.L {
		t.Errorf("got %v, want log.L", got)
	}
}

// A program that says nothing about logging sees what the library has to say, with
// the logger that slog has at that time.
func TestDefaultIsSlog(t *testing.T) {
	var buf bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	l := log.L.WithField("pod", "web")
	slog.SetDefault(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{AddSource: true, ReplaceAttr: noTime})))
	l.WithError(errors.New("no such image")).Warn("Cannot create pod")
	for _, want := range []string{"level=WARN", `msg="Cannot create pod"`, "pod=web", `error="no such image"`, "log_test.go:"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("%q has no %s", buf.String(), want)
		}
	}
}
