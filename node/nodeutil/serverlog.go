package nodeutil

import (
	"bytes"
	"context"
	stdlog "log"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// serverLog logs what net/http says of clients, such as failed handshakes, where
// everything else is logged: short, and not too often.
func serverLog(ctx context.Context) *stdlog.Logger {
	return stdlog.New(serverLogWriter{ctx, newQuietLog()}, "", 0)
}

type serverLogWriter struct {
	ctx   context.Context
	quiet *quietLog
}

func (w serverLogWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	if bytes.HasSuffix(text, []byte("EOF")) {
		log.G(w.ctx).Debug(shortText(string(text))) // a caller that only looks whether the port is open
	} else {
		w.quiet.info(w.ctx, "The HTTP server refused a client", log.Fields{"reason": string(text)})
	}
	return len(line), nil
}
