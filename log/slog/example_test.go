package slog_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	vkslog "github.com/virtual-kubelet/virtual-kubelet/log/slog"
)

func Example() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})

	// Programs assign it to log.L, or put it into the context.
	ctx := log.WithLogger(context.Background(), vkslog.FromSlog(slog.New(handler)))
	log.G(ctx).WithField("pod", "default/web").Info("created")
	// Output: level=INFO msg=created pod=default/web
}
