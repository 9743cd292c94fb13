package buildinfo

import (
	"runtime/debug"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

func TestRead(t *testing.T) {
	got := read(&debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "example.com/provider", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: modulePath, Version: "v2.0.0"},
			{Path: "k8s.io/client-go", Version: "v0.36.3"},
		},
		Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}},
	})
	want := Info{Version: "v2.0.0", Revision: "abc-dirty", Kubernetes: "v1.36.3", Go: "go1.26.8"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Tools parse the kubelet's version, kubectl and the upgrade checks among them.
func TestKubeletVersionIsAKubernetesVersion(t *testing.T) {
	if _, err := version.ParseSemantic(KubeletVersion()); err != nil {
		t.Error(err)
	}
}
