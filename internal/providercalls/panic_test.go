package providercalls_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	vklogrus "github.com/virtual-kubelet/virtual-kubelet/log/logrus"
)

func fails(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = providercalls.Panicked(ctx, providercalls.Ping, r)
		}
	}()
	panic("boom")
}

func TestPanickedLogsTheStackOnce(t *testing.T) {
	logger, lines := test.NewNullLogger()
	err := fails(log.WithLogger(t.Context(), vklogrus.FromLogrus(logrus.NewEntry(logger))))
	if want := "the provider panicked in Ping: boom"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(lines.Entries) != 1 || lines.LastEntry().Message != "The provider panicked" {
		t.Fatalf("logged %v", lines.Entries)
	}
	if stack, _ := lines.LastEntry().Data["stack"].(string); !strings.Contains(stack, "providercalls_test.fails") {
		t.Errorf("the stack lacks what panicked: %s", stack)
	}
}
