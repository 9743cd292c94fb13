package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// Another format is that of loggers, too, which were made before, with all that they have.
func TestLogFormatOfLoggersThatExist(t *testing.T) {
	before := log.L
	defer func() { log.L = before; klog.ClearLogger() }()
	var logged bytes.Buffer
	format := new(logFormat)
	pod := setUpLogging(slog.LevelInfo, format, &logged).WithField("pod", "a")
	library := klog.LoggerWithValues(klog.FromContext(context.Background()), "pod", "b")
	handler := logHandler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil), format}
	grouped := slog.New(handler).WithGroup("pod").With("name", "c")
	for _, step := range []struct{ format, want string }{
		{"text", `level=INFO msg=line pod=a|level=INFO msg=line pod=b|level=INFO msg=line pod.name=c|`},
		{"json", `"level":"INFO","msg":"line","pod":"a"}|"level":"INFO","msg":"line","pod":"b"}|"level":"INFO","msg":"line","pod":{"name":"c"}}|`},
		{"text", `level=INFO msg=line pod=a|level=INFO msg=line pod=b|level=INFO msg=line pod.name=c|`},
	} {
		format.use(step.format)
		logged.Reset()
		pod.Debug("none")
		pod.Info("line")
		library.Info("line")
		grouped.Info("line")
		var got strings.Builder
		for line := range strings.Lines(logged.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), map[string]string{"text": " ", "json": ","}[step.format])
			got.WriteString(line + "|")
		}
		if strings.ReplaceAll(got.String(), `"logger":"",`, "") != step.want {
			t.Errorf("%s: logged %s, want %s", step.format, &got, step.want)
		}
	}
}
