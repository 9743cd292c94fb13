package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// A change to what can be reloaded counts at once; one to anything else is logged once, and so
// are a file that is wrong and one that is again as it was.
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
		o.live = newLive(o)
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), setUpLogging(&o.live.level, o.logFormat, &logged)))
		done := make(chan struct{})
		used := newConfigMetric()
		go func() { o.watchConfig(ctx, used); close(done) }()
		const nothing = "nothing" // at all is in the file
		for _, step := range []struct {
			fields string
			used   float64
			want   string
		}{
			{"logging: {level: warn}\n", 1, `level=INFO msg="The configuration has changed, and is in use" fields=logging.level`},
			{"logging: {level: debug}\n", 1, `msg="The configuration has changed, and is in use" fields=logging.level`},
			{"logging: {level: debug}\nnode: {name: other}\n", 1, ""}, // the flag goes before it
			{"logging: {level: debug}\nnode: {os: windows}\npods: {syncWorkers: 5}\n", 0, `level=WARN msg="The configuration has changed: restart to use it" fields="node.os, pods.syncWorkers"`},
			{"logging: {level: info}\nnode: {os: windows}\npods: {syncWorkers: 5}\n", 0, `msg="The configuration has changed, and is in use" fields=logging.level`},
			{"logging: {level: loud}\n", 0, `level=ERROR msg="The configuration cannot be used; the values in force stay" error="` + file + `:4: logging.level: it is \"loud\": use one of debug, info, warn, error"`},
			{"logging: {level: info}\n", 1, `msg="The configuration is again as this process uses it"`},
			{"logging: {level: debug}\n", 1, `msg="The configuration has changed, and is in use" fields=logging.level`},
			{nothing, 0, `level=ERROR msg="The configuration cannot be used; the values in force stay" error="` + file + `: there is no VirtualKubeletConfiguration in it any more: write one, or restart"`},
			{"logging: {level: debug}\n", 1, `msg="The configuration is again as this process uses it"`},
			{"logging: {level: debug}\nclientConnection: {qps: 5}\ntracing: {sampleRate: never}\n", 1, `msg="The configuration has changed, and is in use" fields="clientConnection.qps, tracing.sampleRate"`},
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
			if got, want := testutil.ToFloat64(used), step.used; got != want {
				t.Errorf("%s: the metric is %v, want %v", step.fields, got, want)
			}
		}
		if qps, burst := o.live.requests.QPS(), o.live.requests.current.Load().Burst(); qps != 5 || burst != 10 {
			t.Errorf("the limit of requests is %v a second, and %d at once", qps, burst)
		}
		if sampler := o.live.traces.Description(); sampler != "AlwaysOffSampler" {
			t.Errorf("traces are sampled by %s", sampler)
		}
		cancel()
		<-done
	})
}

// The provider's own file is part of the configuration: what has changed in it needs a restart,
// and what is wrong in it would keep a restarted process from running.
func TestFileOfTheProviderIsWatched(t *testing.T) {
	noCluster(t)
	provider := filepath.Join(t.TempDir(), "provider.yaml")
	write := func(content string) {
		if err := os.WriteFile(provider, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const before = `virtual-kubelet: {cpu: "1"}`
	write(before)
	file := writeConfig(t, "provider: mock\nproviderConfig: "+provider+"\n")
	global := log.L
	defer func() { log.L = global }()
	synctest.Test(t, func(t *testing.T) {
		o := parsed(t, "--config", file)
		var logged lockedbuffer.Buffer
		o.live = newLive(o)
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), setUpLogging(&o.live.level, o.logFormat, &logged)))
		done := make(chan struct{})
		go func() { o.watchConfig(ctx, newConfigMetric()); close(done) }()
		synctest.Wait()
		for _, step := range []struct{ content, want string }{
			{`virtual-kubelet: {cpu: "2"}`, `level=WARN msg="The configuration has changed: restart to use it" fields=providerConfig`},
			{`virtual-kubelet: {cpus: "2"}`, `level=ERROR msg="The configuration cannot be used; the values in force stay"`},
			{before, `msg="The configuration is again as this process uses it"`},
		} {
			write(step.content)
			seen := len(logged.String())
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := logged.String()[seen:]; !strings.Contains(got, step.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("%s: logged %q, want %q", step.content, got, step.want)
			}
		}
		cancel()
		<-done
	})
}

// A limit of the file is that of the client which a process made before.
func TestRequestsFollowTheLimitInForce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"gitVersion": "v1.36.0"}`)
	}))
	defer server.Close()
	o := parsed(t, "--provider", "mock")
	o.live = newLive(o)
	client, err := kubernetes.NewForConfig(limit(&rest.Config{Host: server.URL}, o))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(times int) (failed int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range times {
			if err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
				failed++
			}
		}
		return failed
	}
	if failed := ask(20); failed != 0 {
		t.Errorf("without a limit %d requests fail", failed)
	}
	o.live.use(parsed(t, "--provider", "mock", "--kube-api-qps", "0.001", "--kube-api-burst", "2"))
	if failed := ask(5); failed != 3 { // at once, since their turn would be after the deadline
		t.Errorf("with two requests at once, and none for the next minutes, %d of 5 fail", failed)
	}
	o.live.use(o)
	if failed := ask(5); failed != 0 {
		t.Errorf("without a limit again %d requests fail", failed)
	}
}
