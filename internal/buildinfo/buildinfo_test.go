package buildinfo

import (
	"runtime/debug"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

func TestRead(t *testing.T) {
	clone := &debug.Module{Path: modulePath, Version: "v0.0.0", Replace: &debug.Module{Path: "../.."}}
	binary := modulePath + "/cmd/virtual-kubelet"
	for name, tc := range map[string]struct {
		main, library debug.Module
		version       string
	}{
		"the library in a stranger's program":                  {debug.Module{Path: "example.com/provider", Version: "(devel)"}, debug.Module{Path: modulePath, Version: "v2.0.0"}, "v2.0.0"},
		"the library in a stranger's program with a version":   {debug.Module{Path: "example.com/provider", Version: "v3.0.0"}, debug.Module{Path: modulePath, Version: "v2.0.0"}, "v2.0.0"},
		"a clone of the library in a stranger's program":       {debug.Module{Path: "example.com/provider", Version: "v3.0.0"}, *clone, "devel"},
		"a fork of the library in a stranger's program":        {debug.Module{Path: "example.com/provider"}, debug.Module{Path: modulePath, Version: "v2.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v2.0.1"}}, "v2.0.1"},
		"the binary of a clone":                                {debug.Module{Path: binary, Version: "v2.0.1-0.20261122221530-0123456789ab"}, *clone, "v2.0.1-0.20261122221530-0123456789ab"},
		"the binary of a clone without version control":        {debug.Module{Path: binary, Version: "(devel)"}, *clone, "devel"},
		"the binary of a release":                              {debug.Module{Path: binary, Version: "v2.0.0"}, debug.Module{Path: modulePath, Version: "v2.0.0"}, "v2.0.0"},
		"a program whose module's name has the library's only": {debug.Module{Path: modulePath + "-fork", Version: "v9.0.0"}, *clone, "devel"},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(&debug.BuildInfo{
				GoVersion: "go1.26.8",
				Main:      tc.main,
				Deps:      []*debug.Module{&tc.library, {Path: "k8s.io/client-go", Version: "v0.36.3"}},
				Settings:  []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}},
			})
			want := Info{Version: tc.version, Revision: "abc-dirty", Kubernetes: "v1.36.3", Go: "go1.26.8"}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// Tools parse the kubelet's version, kubectl and the upgrade checks among them.
func TestKubeletVersionIsAKubernetesVersion(t *testing.T) {
	if _, err := version.ParseSemantic(KubeletVersion()); err != nil {
		t.Error(err)
	}
}
