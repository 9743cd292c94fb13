package cri

import (
	"strings"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
)

func TestParseConfig(t *testing.T) {
	cfg, err := ParseConfig([]byte(`{"endpoint": "unix:///x.sock", "clusterDNS": ["10.96.0.10"], "hostPaths": ["/srv"], "cpu": "4",
		"containerLogMaxSize": "1Mi", "imageMinimumGCAge": "1h", "maxParallelImagePulls": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	cfg.complete("n1")
	if cfg.ImageEndpoint != "unix:///x.sock" || cfg.Root != "/var/lib/virtual-kubelet/n1" || cfg.CPU.Value() != 4 ||
		cfg.ContainerLogMaxSize.Value() != 1<<20 || cfg.ImageMinimumGCAge.Duration != time.Hour || *cfg.MaxParallelImagePulls != 3 {
		t.Errorf("got %+v", cfg)
	}
	empty, err := ParseConfig(nil)
	if err != nil || empty.Endpoint != "" {
		t.Errorf("an empty file gives %+v, %v", empty, err)
	}
	empty.complete("n1")
	if empty.LogRoot != "/var/log/pods" || empty.LogLinks != "/var/log/containers" || empty.CgroupDriver != "cgroupfs" || empty.CgroupParent != "/vkpods" || empty.Relay {
		t.Errorf("the defaults are %+v", empty)
	}
	// Links in the place of all are for logs in the place of all.
	elsewhere := Config{Config: machine.Config{LogRoot: "/srv/logs"}}
	if elsewhere.complete("n1"); elsewhere.LogLinks != "" {
		t.Errorf("logs in /srv/logs are linked in %s", elsewhere.LogLinks)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`{"endpont": "x"}`:              "endpont",
		`{"clusterDNS": ["dns.local"]}`: "dns.local",
		`{"root": "relative"}`:          "relative",
		`{"cpu": "many"}`:               "cri config",
		`[]`:                            "cri config",
		`{"containerLogMaxFiles": 1}`:   "containerLogMaxFiles is 1",
		`{"maxParallelImagePulls": 0}`:  "maxParallelImagePulls is 0",
		`{"imageMinimumGCAge": "soon"}`: "cri config",
		`{"cgroupDriver": "cgroup"}`:    "cgroupDriver",
		`{"cgroupParent": "/"}`:         "no control group",
	} {
		_, err := ParseConfig([]byte(text))
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one that says %q", text, err, says)
		}
	}
}
