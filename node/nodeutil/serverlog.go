package nodeutil

import (
	"bytes"
	"context"
	stdlog "log"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// serverLog has what net/http says of clients, such as failed handshakes, logged
// where everything else is.
func serverLog(ctx context.Context) *stdlog.Logger {
	return stdlog.New(serverLogWriter{log.G(ctx)}, "", 0)
}

type serverLogWriter struct{ logger log.Logger }

func (w serverLogWriter) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	if bytes.HasSuffix(text, []byte("EOF")) {
		w.logger.Debug(string(text)) // who only looks whether the port is open
	} else {
		w.logger.Info(string(text))
	}
	return len(line), nil
}
