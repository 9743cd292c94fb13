//go:build !race

package slog_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

func TestAllocations(t *testing.T) {
	logger := vkslog.FromSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	of := logger.WithFields(log.Fields{"namespace": "default", "pod": "web"})
	allocs.Compare(t,
		allocs.Operation{Name: "WithFields", Do: func() { logger.WithFields(log.Fields{"namespace": "default", "pod": "web"}) }},
		allocs.Operation{Name: "line-that-is-not-written", Do: func() { of.WithField("action", "create").Debug("Acting on pod") }},
		allocs.Operation{Name: "line", Do: func() { of.Info("Created pod in provider") }},
	)
}
