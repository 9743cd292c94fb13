package cri

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

func TestParseConfig(t *testing.T) {
	cfg, err := ParseConfig([]byte(`{"endpoint": "unix:///x.sock", "clusterDNS": ["10.96.0.10"], "hostPaths": ["/srv"], "cpu": "4"}`))
	if err != nil {
		t.Fatal(err)
	}
	cfg.complete("n1")
	if cfg.ImageEndpoint != "unix:///x.sock" || cfg.Root != "/var/lib/virtual-kubelet/n1" || cfg.LogRoot != "/var/lib/virtual-kubelet/n1/logs" || cfg.Pods.Value() != 110 {
		t.Errorf("defaults: %+v", cfg)
	}
	if empty, err := ParseConfig(nil); err != nil || empty.Endpoint != "" {
		t.Errorf("an empty file gives %+v, %v", empty, err)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`{"endpont": "x"}`:              "endpont",
		`{"clusterDNS": ["dns.local"]}`: "dns.local",
		`{"root": "relative"}`:          "relative",
		`{"hostPaths": ["srv"]}`:        "srv",
		`{"cpu": "many"}`:               "cri config",
		`[]`:                            "cri config",
	} {
		_, err := ParseConfig([]byte(text))
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one that says %q", text, err, says)
		}
	}
}

// Pods get the directories of the host that the operator has named, and no
// others.
func TestHostPathsAreDeniedUnlessNamed(t *testing.T) {
	if allowed(nil) != nil {
		t.Error("hostPath volumes are supported by default")
	}
	policy := allowed([]string{"/srv/data", "/opt"})
	for path, want := range map[string]bool{
		"/srv/data": true, "/srv/data/a/b": true, "/opt": true,
		"/srv": false, "/srv/database": false, "/etc": false, "/": false,
	} {
		err := policy(volume.HostAccess{Pod: &corev1.Pod{}, Path: path})
		if (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := allowed([]string{"/"})(volume.HostAccess{Path: "/etc"}); err != nil {
		t.Errorf("with / allowed: %v", err)
	}
	if err := policy(volume.HostAccess{Path: "/etc"}); errors.Is(err, nil) || !strings.Contains(err.Error(), "hostPaths") {
		t.Errorf("%v does not say what to do", err)
	}
}
