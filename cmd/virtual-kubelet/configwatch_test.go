package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// A change to the log level counts at once; one to anything else is logged once, and so are a
// file that is wrong and one that is again as it was.
func TestConfigIsWatched(t *testing.T) {
	noCluster(t)
	file := writeConfig(t, "provider: mock\n")
	head, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before := log.L
	defer func() { log.L = before }()
	synctest.Test(t, func(t *testing.T) {
		o := parsed(t, "--config", file, "--trace-tag", "a=[b]", "--nodename", "flag")
		var logged lockedbuffer.Buffer
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), setUpLogging(o, &logged)))
		done := make(chan struct{})
		go func() { o.watchConfig(ctx); close(done) }()
		const nothing = "nothing" // at all is in the file
		for _, step := range []struct{ fields, want string }{
			{"logging: {level: warn}\n", `level=INFO msg="Changed the log level" to=warn`},
			{"logging: {level: debug}\n", `msg="Changed the log level" to=debug`},
			{"logging: {level: debug}\nnode: {name: other}\n", ""}, // the flag goes before it
			{"logging: {level: debug}\nnode: {os: windows}\npods: {syncWorkers: 5}\n", `level=WARN msg="The configuration has changed: restart to use it" fields="node.os, pods.syncWorkers"`},
			{"logging: {level: info}\nnode: {os: windows}\npods: {syncWorkers: 5}\n", `msg="Changed the log level" to=info`},
			{"logging: {level: loud}\n", `level=ERROR msg="The configuration cannot be used; the values in force stay" error="` + file + `:4: logging.level: it is \"loud\": use one of debug, info, warn, error"`},
			{"logging: {level: info}\n", `msg="The configuration is again as this process uses it"`},
			{"logging: {level: debug}\n", `msg="Changed the log level" to=debug`},
			{nothing, `level=ERROR msg="The configuration cannot be used; the values in force stay" error="` + file + `: there is no VirtualKubeletConfiguration in it any more: write one, or restart"`},
			{"logging: {level: debug}\n", `msg="The configuration is again as this process uses it"`},
		} {
			content := string(head) + step.fields
			if step.fields == nothing {
				content = ""
			}
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			seen := len(logged.String())
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := logged.String()[seen:]; !strings.Contains(got, step.want) || strings.Count(got, "\n") != min(len(step.want), 1) {
				t.Errorf("%s: logged %q, want %q", step.fields, got, step.want)
			}
		}
		cancel()
		<-done
	})
}
