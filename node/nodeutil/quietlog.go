package nodeutil

import (
	"context"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// maxLoggedText is how many bytes of what a caller has sent are logged.
	maxLoggedText = 256
	// quietLogRate is how many lines a second are logged of what anybody can cause,
	// and quietLogBurst how many at once.
	quietLogRate  = 5
	quietLogBurst = 20
)

// quietLog logs what any client that reaches the port can cause: short lines, and not
// many of them. A line says how many were left out before it.
type quietLog struct {
	limiter flowcontrol.RateLimiter
	leftOut atomic.Int64
}

func newQuietLog() *quietLog {
	return &quietLog{limiter: flowcontrol.NewTokenBucketRateLimiter(quietLogRate, quietLogBurst)}
}

func (q *quietLog) warn(ctx context.Context, message string, fields log.Fields) {
	if logger := q.next(ctx, fields); logger != nil {
		logger.Warn(message)
	}
}

func (q *quietLog) info(ctx context.Context, message string, fields log.Fields) {
	if logger := q.next(ctx, fields); logger != nil {
		logger.Info(message)
	}
}

// next returns a logger for a line, or nil if there were too many.
func (q *quietLog) next(ctx context.Context, fields log.Fields) log.Logger {
	if !q.limiter.TryAccept() {
		q.leftOut.Add(1)
		return nil
	}
	logger := log.G(ctx).WithFields(shortFields(fields))
	if n := q.leftOut.Swap(0); n > 0 {
		logger = logger.WithField("leftOut", n)
	}
	return logger
}

func shortFields(fields log.Fields) log.Fields {
	short := make(log.Fields, len(fields))
	for key, value := range fields {
		switch v := value.(type) {
		case string:
			value = shortText(v)
		case error:
			value = shortText(v.Error())
		}
		short[key] = value
	}
	return short
}

// shortText cuts a text.
func shortText(text string) string {
	if len(text) <= maxLoggedText {
		return text
	}
	return strings.ToValidUTF8(text[:maxLoggedText], "") + "…"
}
