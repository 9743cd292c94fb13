package nodeutil

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// What anybody can have logged is short, and not much of it.
func TestLinesAboutRefusedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := &lines{}
		ctx := log.WithLogger(t.Context(), logged)
		writer := serverLog(ctx).Writer()
		for range 1000 {
			_, _ = io.WriteString(writer, "http: TLS handshake error from 10.0.0.1:1: "+strings.Repeat("x", 10_000)+"\n")
		}
		if n := len(logged.texts); n != quietLogBurst {
			t.Errorf("%d lines of 1000 were logged at once, want %d", n, quietLogBurst)
		}
		refused := newQuietLog()
		refused.warn(ctx, "Refused", log.Fields{"uri": strings.Repeat("é", 1000), "error": errors.New(strings.Repeat("y", 1000)), "status": 403})
		for _, text := range logged.texts {
			if len(text) > 3*maxLoggedText {
				t.Fatalf("a line has %d bytes: %s", len(text), text)
			}
		}
	})
}

// lines is a logger that keeps its lines, with their fields.
type lines struct {
	log.Logger
	texts  []string
	parent *lines
	fields string
}

func (l *lines) WithFields(fields log.Fields) log.Logger {
	next := &lines{parent: l, fields: l.fields}
	for key, value := range fields {
		next.fields += " " + key + "="
		if text, ok := value.(string); ok {
			next.fields += text
		}
	}
	return next
}
func (l *lines) WithField(key string, value any) log.Logger {
	return l.WithFields(log.Fields{key: value})
}
func (l *lines) Warn(args ...any) { l.Info(args...) }
func (l *lines) Info(args ...any) {
	root := l
	for root.parent != nil {
		root = root.parent
	}
	text, _ := args[0].(string)
	root.texts = append(root.texts, text+l.fields)
}
