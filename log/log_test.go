package log_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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

func TestDefaultDropsAll(t *testing.T) {
	l := log.L.WithField("a", 1).WithFields(log.Fields{"b": 2}).WithError(errors.New("c"))
	l.Debug("x")
	l.Debugf("x")
	l.Info("x")
	l.Infof("x")
	l.Warn("x")
	l.Warnf("x")
	l.Error("x")
	l.Errorf("x")
	if log.WithCallerSkip(l, 1) != l {
		t.Error("a logger without source lines has to stay what it is")
	}
}
