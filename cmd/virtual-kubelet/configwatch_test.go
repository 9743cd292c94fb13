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
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), setUpLogging(&o.live.level, &o.live.format, &logged)))
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
			{"logging: {level: debug, format: json}\n", 1, `"msg":"The configuration has changed, and is in use","fields":"logging.format"`},
			{"logging: {level: debug}\n", 1, `level=INFO msg="The configuration has changed, and is in use" fields=logging.format`},
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
		if qps, burst := o.live.requests.current.Load().Limit(), o.live.requests.current.Load().Burst(); qps != 5 || burst != 10 {
			t.Errorf("the limit of requests is %v a second, and %d at once", qps, burst)
		}
		if sampler := o.live.traces.Description(); sampler != "AlwaysOffSampler" {
			t.Errorf("traces are sampled by %s", sampler)
		}
		cancel()
		<-done
	})
}

// The provider's own file is part of the configuration, also without one of --config: what has
// changed in it needs a restart, and what is wrong in it would keep a restarted process from
// running. A process that stands by makes its provider of what was checked at its start.
func TestFileOfTheProviderIsWatched(t *testing.T) {
	noCluster(t)
	provider := filepath.Join(t.TempDir(), "provider.yaml")
	const before, gone = `virtual-kubelet: {cpu: "1"}`, "gone"
	write := func(content string) {
		err := os.WriteFile(provider, []byte(content), 0o600)
		if content == gone {
			err = os.Remove(provider)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	global := log.L
	defer func() { log.L = global }()
	for field, args := range map[string][]string{
		"providerConfig":    {"--config", writeConfig(t, "provider: mock\nproviderConfig: "+provider+"\n")},
		"--provider-config": {"--provider", "mock", "--provider-config", provider},
	} {
		write(before)
		synctest.Test(t, func(t *testing.T) {
			o := parsed(t, args...)
			write(`virtual-kubelet: {cpu: "2"}`) // between the check and the watch
			var logged lockedbuffer.Buffer
			o.live = newLive(o)
			ctx, cancel := context.WithCancel(log.WithLogger(t.Context(), setUpLogging(&o.live.level, &o.live.format, &logged)))
			done, used := make(chan struct{}), newConfigMetric()
			if !o.hasFiles() || !o.hasConfiguration() {
				t.Errorf("%s: the file is not watched", field)
			}
			go func() { o.watchConfig(ctx, used); close(done) }()
			const changed = `level=WARN msg="The configuration has changed: restart to use it" fields=`
			const wrong = `level=ERROR msg="The configuration cannot be used; the values in force stay" error=`
			seen := 0
			for _, step := range []struct {
				content, want, also string
				used                float64
			}{
				{`virtual-kubelet: {cpu: "2"}`, changed + field, "", 0},
				{`virtual-kubelet: {cpus: "2"}`, wrong, "cpus", 0},
				{before, `msg="The configuration is again as this process uses it"`, "", 1},
				{gone, wrong, provider + ": no such file", 0},
				{`virtual-kubelet: {cpu: "3"}`, changed + field, "", 0},
			} {
				write(step.content)
				time.Sleep(time.Minute)
				synctest.Wait()
				got := logged.String()[seen:]
				seen += len(got)
				if !strings.Contains(got, step.want) || !strings.Contains(got, step.also) || strings.Count(got, "\n") != 1 {
					t.Errorf("%s, %s: logged %q, want %q with %q", field, step.content, got, step.want, step.also)
				}
				if in, err := o.configOfProvider(); string(in) != before || err != nil || testutil.ToFloat64(used) != step.used {
					t.Errorf("%s, %s: %q is in force (%v), and the metric is %v", field, step.content, in, err, testutil.ToFloat64(used))
				}
			}
			cancel()
			<-done
		})
	}
}

// Processes without a file have nothing to watch, and node pools are watched elsewhere, with the
// configuration of the provider.
func TestWhatIsWatched(t *testing.T) {
	noCluster(t)
	pools, provider := filepath.Join(t.TempDir(), "pools.yaml"), filepath.Join(t.TempDir(), "provider.yaml")
	writePools(t, pools, "{pools: [{name: a, count: 1}]}")
	if err := os.WriteFile(provider, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args                 []string
		files, configuration bool
	}{
		{nil, false, false},
		{[]string{"--provider-config", provider}, true, true},
		{[]string{"--provider-config", provider, "--nodes", "2"}, true, true},
		{[]string{"--config", pools, "--provider-config", provider}, true, false},
		{[]string{"--config", writeConfig(t, "")}, true, true},
	} {
		o := parsed(t, append([]string{"--provider", "mock"}, c.args...)...)
		if o.hasFiles() != c.files || o.hasConfiguration() != c.configuration {
			t.Errorf("%v: there are files: %v, and a configuration: %v", c.args, o.hasFiles(), o.hasConfiguration())
		}
	}
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

// The lease of a node, of a leader or of a shard is renewed in time, however many requests wait for their turn; and a
// watch, of which there is one for all pods, has none, as in client-go.
func TestLeasesDoNotWaitForOtherRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "a"}}`)
	}))
	defer server.Close()
	o := parsed(t, "--provider", "mock", "--kube-api-qps", "0.001", "--kube-api-burst", "1")
	o.live = newLive(o)
	client, err := kubernetes.NewForConfig(limit(&rest.Config{Host: server.URL + "/clusters/a"}, o))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	version := func() error { return client.RESTClient().Get().AbsPath("/version").Do(ctx).Error() }
	if first, second := version(), version(); first != nil || second == nil {
		t.Errorf("with one request at once, and none for the next minutes: %v, %v", first, second)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for range 3 {
		if _, err := client.CoordinationV1().Leases("kube-node-lease").Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			t.Errorf("a lease: %v", err)
		}
	}
	watch, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("a watch: %v", err)
	}
	watch.Stop()
}
