package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

func TestConfig(t *testing.T) {
	var cfg Config
	cfg.Complete("n1")
	if cfg.Root != "/var/lib/virtual-kubelet/n1" || cfg.LogRoot != "/var/lib/virtual-kubelet/n1/logs" || cfg.Pods.Value() != 110 {
		t.Errorf("defaults: %+v", cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if got := cfg.logLimits(); got != (podengine.LogLimits{}) {
		t.Errorf("limits of logs are %+v, want the engine's defaults", got)
	}
	limited := Config{ContainerLogMaxSize: ptr.To(resource.MustParse("1Ki")), ContainerLogMaxFiles: ptr.To(2)}
	if got := limited.logLimits(); got != (podengine.LogLimits{MaxSize: 1024, MaxFiles: 2}) {
		t.Errorf("limits of logs are %+v", got)
	}
	for says, bad := range map[string]Config{
		"dns.local":  {ClusterDNS: []string{"dns.local"}},
		"relative":   {Root: "relative"},
		"other/logs": {LogRoot: "other/logs"},
		"srv":        {HostPaths: []string{"srv"}},

		"containerLogMaxSize":  {ContainerLogMaxSize: ptr.To(resource.MustParse("0"))},
		`"*"`:                  {AllowedUnsafeSysctls: []string{"*"}},
		"kernel/msgmax":        {AllowedUnsafeSysctls: []string{"kernel.msg*", "kernel/msgmax"}},
		"userNamespaceFirstID": {UserNamespaceFirstID: 1000},
		"containerLogMaxFiles": {ContainerLogMaxFiles: ptr.To(1)},
	} {
		if err := bad.Validate(); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want one that says %q", bad, err, says)
		}
	}
}

// Pods get the directories of the host that the operator has named, and no
// others.
func TestHostPathsAreDeniedUnlessNamed(t *testing.T) {
	if HostPaths(nil) != nil {
		t.Error("hostPath volumes are supported by default")
	}
	policy := HostPaths([]string{"/srv/data", "/opt"})
	for path, want := range map[string]bool{
		"/srv/data": true, "/srv/data/a/b": true, "/opt": true,
		"/srv": false, "/srv/database": false, "/etc": false, "/": false,
	} {
		err := policy(volume.HostAccess{Pod: &corev1.Pod{}, Path: path})
		if (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
		if err != nil && !strings.Contains(err.Error(), "hostPaths") {
			t.Errorf("%v does not say what to do", err)
		}
	}
	if err := HostPaths([]string{"/"})(volume.HostAccess{Path: "/etc"}); err != nil {
		t.Errorf("with / allowed: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	var n corev1.Node
	cfg := Config{CPU: ptr.To(resource.MustParse("3"))}
	cfg.Complete("n1")
	describe(&n, cfg, 1<<30, nil)
	for name, want := range map[corev1.ResourceName]string{"cpu": "3", "memory": "1Gi", "pods": "110"} {
		if got := n.Status.Allocatable[name]; got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: %v, want %s", name, &got, want)
		}
	}
	if n.Status.NodeInfo.Architecture == "" || len(n.Status.Conditions) != 4 {
		t.Errorf("the node is %+v", n.Status)
	}
	// Without it the scheduler binds no pod here whose rules restart all its containers.
	if !slices.Contains(n.Status.DeclaredFeatures, "RestartAllContainersOnContainerExits") || !slices.IsSorted(n.Status.DeclaredFeatures) {
		t.Errorf("the node declares %v", n.Status.DeclaredFeatures)
	}
}

// Containers are limited to the huge pages that they ask for, of each size that the machine has.
func TestHugePageSizes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"hugepages-64kB", "hugepages-2048kB", "hugepages-1048576kB", "hugepages-16777216kB", "other", "hugepages-kB"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := hugePageSizes(dir)
	slices.Sort(got)
	if want := []string{"16GB", "1GB", "2MB", "64KB"}; !slices.Equal(got, want) {
		t.Errorf("the sizes are %q, want %q", got, want)
	}
	if got := hugePageSizes(filepath.Join(dir, "none")); len(got) > 0 {
		t.Errorf("without huge pages the sizes are %q", got)
	}
}
