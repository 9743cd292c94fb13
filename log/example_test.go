package log_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func ExampleWithLogger() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: noTime})
	ctx := log.WithLogger(context.Background(), vkslog.FromSlog(slog.New(handler)))

	// Each part adds what it knows and hands the context on.
	ctx = log.WithLogger(ctx, log.G(ctx).WithField("node", "vk-1"))
	log.G(ctx).Info("ready")
	// Output: level=INFO msg=ready node=vk-1
}
