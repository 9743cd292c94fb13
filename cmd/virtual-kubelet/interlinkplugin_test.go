package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

func TestInterlinkPluginFlags(t *testing.T) {
	for want, args := range map[string]string{
		"there is no provider":                  "--listen unix:///a",
		"--state-dir is missing":                "--provider mock --listen unix:///a",
		"write unix:///PATH":                    "--provider mock --state-dir a --listen a",
		"all who connect could run pods":        "--provider mock --state-dir a --listen :4000",
		"--tls-cert-file and --tls-private-key": "--provider mock --state-dir a --listen 127.0.0.1:4000 --client-ca-file ca",
		"could run pods: give --tls-cert-file":  "--provider process --provider-config missing --state-dir a --listen 127.0.0.1:0",
	} {
		var out bytes.Buffer
		if code := run(append([]string{"interlink-plugin"}, strings.Fields(args)...), &out, &out); code != exitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d %s", args, code, out.String())
		}
	}
}

// Behind remote may be a provider whose pods run on this machine: they could connect to 127.0.0.1.
func TestInterlinkPluginBeforeAProviderOfThisMachine(t *testing.T) {
	const tls = "\ntls: {caFile: a, certFile: b, keyFile: c}"
	for config, refused := range map[string]bool{
		"address: unix:///run/provider.sock": true,
		"address: 127.0.0.1:9443" + tls:      true,
		"address: '[::1]:9443'" + tls:        true,
		"address: localhost:9443" + tls:      true,
		"address: 192.0.2.1:9443" + tls:      false,
		"address: example.com:9443" + tls:    false,
	} {
		file := filepath.Join(t.TempDir(), "remote.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		flags := providerFlags{provider: "remote", providerConfig: file, logLevel: "info", logFormat: "text"}
		o := interlinkPlugin{providerFlags: flags, listenFlags: listenFlags{listen: "127.0.0.1:4000"}, stateDir: "a"}
		if err := o.complete(); (err != nil) != refused {
			t.Errorf("%s: %v, want that it is refused: %v", config, err, refused)
		}
		o.listen = "unix:///run/plugin.sock"
		if err := o.complete(); err != nil {
			t.Errorf("%s: a socket is refused: %v", config, err)
		}
	}
}

// A pod survives a restart of the plugin.
func TestInterlinkPlugin(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "plugin.sock")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}, DisableKeepAlives: true}}
	ask := func(method, path, body string) string {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			request, err := http.NewRequestWithContext(t.Context(), method, "http://plugin"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err != nil && time.Now().Before(deadline) {
				continue // it does not listen yet
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s %s %v", path, response.Status, text, err)
			}
			return string(text)
		}
	}
	pod := `{"metadata": {"namespace": "default", "name": "web", "uid": "0e5f5d7a-8a1e-4f0e-9d62-5a3c8f2f2b10"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}`
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var logged lockedbuffer.Buffer
		o := interlinkPlugin{providerFlags: providerFlags{provider: "mock", logLevel: "info", logFormat: "text"}, listenFlags: listenFlags{listen: "unix://" + socket}, stateDir: filepath.Join(dir, "state"), name: "interlink"}
		go func() { ended <- o.run(logTo(ctx, &logged)) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("it ended with %v\n%s", err, logged.String())
			}
		}
	}
	stop := start()
	if text := ask(http.MethodPost, "/create", `{"pod": `+pod+`}`); !strings.Contains(text, `"PodJID"`) {
		t.Errorf("the creation answers %s", text)
	}
	stop()
	if files, err := os.ReadDir(filepath.Join(dir, "state")); err != nil || len(files) != 1 {
		t.Errorf("the files are %v, %v", files, err)
	}
	stop = start()
	defer stop()
	if text := ask(http.MethodGet, "/status", "[]"); !strings.Contains(text, `"status":"ok"`) {
		t.Errorf("the ping answers %s", text)
	}
	ask(http.MethodPost, "/create", `[{"pod": `+pod+`}]`)
	ask(http.MethodPost, "/delete", pod)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		files, err := os.ReadDir(filepath.Join(dir, "state"))
		if err == nil && len(files) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left over: %v, %v", files, err)
		}
	}
}
