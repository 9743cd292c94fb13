package process

import (
	"slices"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/machine"
)

func TestParseConfig(t *testing.T) {
	cfg, err := ParseConfig([]byte(`{"root": "/srv/vk", "hostPaths": ["/data"], "runtime": {"users": ["1000-1999"]}, "endPodsOnExit": true}`))
	if err != nil {
		t.Fatal(err)
	}
	n := machine.Node{Name: "n1"}
	n.HostIPs = func() []string { return []string{"192.0.2.1"} }
	cfg.complete(n)
	r := cfg.Runtime
	if r.Root != "/srv/vk/runtime" || !slices.Equal(r.NodeIPs, []string{"192.0.2.1"}) || !slices.Equal(r.HostPaths, []string{"/data"}) ||
		!slices.Equal(r.VolumeDirs, []string{"/srv/vk/pods"}) || !slices.Equal(r.Users, []string{"1000-1999"}) || !cfg.EndPodsOnExit {
		t.Errorf("got %+v", cfg)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`{"rot": "x"}`:                 "rot",
		`{"runtime": {"user": ["0"]}}`: "user",
		`{"root": "relative"}`:         "relative",
		`[]`:                           "process config",
	} {
		_, err := ParseConfig([]byte(text))
		if !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one that says %q", text, err, says)
		}
	}
}
