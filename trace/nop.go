package trace

import (
	"context"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

type nopTracer struct{}

func (nopTracer) StartSpan(ctx context.Context, _ string) (context.Context, Span) {
	return ctx, nopSpan{log.G(ctx)}
}

// nopSpan records nothing, but its fields still reach the logger.
type nopSpan struct{ logger log.Logger }

func (nopSpan) End()            {}
func (nopSpan) SetStatus(error) {}

func (s nopSpan) Logger() log.Logger { return s.logger }

func (s nopSpan) WithField(ctx context.Context, key string, value any) context.Context {
	return log.WithLogger(ctx, log.G(ctx).WithField(key, value))
}

func (s nopSpan) WithFields(ctx context.Context, fields log.Fields) context.Context {
	return log.WithLogger(ctx, log.G(ctx).WithFields(fields))
}
