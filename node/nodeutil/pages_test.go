package nodeutil_test

import (
	stdjson "encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/json"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// A reader of kubelets' configuration has to be able to read this one:
// each field is a kubelet's, with its true value.
func TestConfigz(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{}, func(cfg *nodeutil.NodeConfig) error {
		cfg.HTTPListenAddr = "192.0.2.1:10250"
		cfg.InformerResyncPeriod = 2 * time.Minute
		cfg.NodeSpec.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("250")}
		return nil
	})
	w := ask(mux, http.MethodGet, "/configz")
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type is %q", got)
	}
	var got struct {
		Config kubeletconfig.KubeletConfiguration `json:"kubeletconfig"`
	}
	if strict, err := json.UnmarshalStrict(w.Body.Bytes(), &got); err != nil || len(strict) > 0 {
		t.Fatalf("%s: %v, %v", w.Body, err, strict)
	}
	config := got.Config
	if config.Kind != "KubeletConfiguration" || config.APIVersion != "kubelet.config.k8s.io/v1beta1" {
		t.Errorf("it is a %s of %s", config.Kind, config.APIVersion)
	}
	if config.Address != "192.0.2.1" || config.Port != 10250 || config.MaxPods != 250 || config.SyncFrequency.Duration != 2*time.Minute ||
		config.StreamingConnectionIdleTimeout.Duration != 4*time.Hour || config.NodeLeaseDurationSeconds != 40 ||
		!*config.EnableServer || !*config.EnableProfilingHandler || !*config.RegisterNode {
		t.Errorf("got %s", w.Body)
	}

	var ours, golden map[string]map[string]any
	recorded, err := os.ReadFile("testdata/configz.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := stdjson.Unmarshal(recorded, &golden); err != nil {
		t.Fatal(err)
	}
	if err := stdjson.Unmarshal(w.Body.Bytes(), &ours); err != nil {
		t.Fatal(err)
	}
	for field := range ours["kubeletconfig"] {
		if _, ok := golden["kubeletconfig"][field]; !ok {
			t.Errorf("a kubelet has no field %s", field)
		}
	}
}

func TestConfigzWithoutLeaseAndServer(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{}, func(cfg *nodeutil.NodeConfig) error {
		cfg.HTTPListenAddr, cfg.Handler, cfg.DisableLease, cfg.DebugHTTP = ":0", nil, true, false
		return nil
	})
	body := ask(mux, http.MethodGet, "/configz").Body.String()
	for _, want := range []string{`"enableServer":false`, `"address":"0.0.0.0"`, `"enableProfilingHandler":false`, `"nodeStatusUpdateFrequency":"10s"`, `"maxPods":110`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
	for _, unwanted := range []string{"nodeLeaseDurationSeconds", `"port"`} {
		if strings.Contains(body, unwanted) {
			t.Errorf("%s is in %s", unwanted, body)
		}
	}
}

func TestStatuszLikeTheKubelet(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{})
	// The separator is chosen by chance, so that nobody parses it.
	shape := func(page string) string {
		page = regexp.MustCompile(`(?m)^(Started|Up|Go version|Binary version|Emulation version|Paths)[:= ].*$`).ReplaceAllString(page, "$1")
		return strings.TrimSpace(page)
	}
	golden, err := os.ReadFile("testdata/statusz.txt")
	if err != nil {
		t.Fatal(err)
	}
	w := ask(mux, http.MethodGet, "/statusz")
	if got, want := shape(w.Body.String()), shape(string(golden)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, want := range []string{"/configz", "/debug", "/exec", "/flagz", "/healthz", "/metrics", "/pods"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is missing in %s", want, w.Body)
		}
	}
}

func TestFlagz(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{}, func(cfg *nodeutil.NodeConfig) error {
		cfg.Flags = map[string]string{"provider": "mock", "a-flag": "1"}
		return nil
	})
	body := ask(mux, http.MethodGet, "/flagz").Body.String()
	if !strings.Contains(body, "kubelet flagz\nWarning: This endpoint is not meant to be machine parseable") || !regexp.MustCompile(`(?s)\na-flag\W+1\nprovider\W+mock\n`).MatchString(body) {
		t.Errorf("got %s", body)
	}
	mux, _ = attachedTo(t, &tiny{})
	if w := ask(mux, http.MethodGet, "/flagz"); w.Code != http.StatusOK {
		t.Errorf("without flags: %d %s", w.Code, w.Body)
	}
}

// Programs get the pages as Kubernetes' API has them, if they ask for a kind, and an error otherwise.
func TestPagesForPrograms(t *testing.T) {
	mux, _ := attachedTo(t, &tiny{}, func(cfg *nodeutil.NodeConfig) error {
		cfg.Flags = map[string]string{"provider": "mock"}
		return nil
	})
	for _, c := range []struct {
		path, accept string
		status       int
		want         string
	}{
		{"/statusz", "text/plain", 200, `kubelet statusz\n`},
		{"/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", 200,
			`"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"},"startTime":"[^"]+","uptimeSeconds":\d+,"goVersion":"go[^"]+","binaryVersion":"[^"]+","emulationVersion":"[^"]+","paths":\["/`},
		{"/statusz", "application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz", 200, `kind: Statusz\n`},
		{"/statusz", "application/json", 406, "text/plain"},
		{"/flagz", "text/plain", 200, `kubelet flagz\n`},
		{"/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 200,
			`"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"},"flags":\{"provider":"mock"\}`},
		{"/flagz", "application/json", 406, "text/plain"},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != c.status || !regexp.MustCompile(c.want).MatchString(w.Body.String()) {
			t.Errorf("%s as %s: %d %s; want %d %s", c.path, c.accept, w.Code, w.Body, c.status, c.want)
		}
	}
}
