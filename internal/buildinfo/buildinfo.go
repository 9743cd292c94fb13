// Package buildinfo reports what this binary was built from.
package buildinfo

import (
	"runtime/debug"
	"strings"
	"sync"
)

const modulePath = "github.com/virtual-kubelet/virtual-kubelet"

// Info is what a bug report needs.
type Info struct {
	// Version is the module's version, "devel" for a build of a work tree.
	Version string `json:"version"`
	// Revision is the commit, with "-dirty" where there were changes on top;
	// empty where it is not known.
	Revision string `json:"revision,omitempty"`
	// Kubernetes is the version of the Kubernetes libraries, as that of the
	// release which they belong to (v1.36.3 for v0.36.3).
	Kubernetes string `json:"kubernetes"`
	// Go is the version of the compiler.
	Go string `json:"go"`
}

// Get reads the information once.
var Get = sync.OnceValue(func() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: "devel", Kubernetes: "v0.0.0"}
	}
	return read(build)
})

func read(build *debug.BuildInfo) Info {
	info := Info{Version: "devel", Kubernetes: "v0.0.0", Go: build.GoVersion}
	for _, module := range append([]*debug.Module{&build.Main}, build.Deps...) {
		// The binary is a module of its own, in which a directory replaces this one.
		ours := module.Path == modulePath || module == &build.Main && strings.HasPrefix(module.Path, modulePath+"/")
		if module.Replace != nil {
			module = module.Replace
		}
		switch {
		case ours:
			if v := module.Version; v != "" && v != "(devel)" {
				info.Version = v
			}
		case module.Path == "k8s.io/client-go":
			info.Kubernetes = strings.Replace(module.Version, "v0.", "v1.", 1)
		}
	}
	for _, setting := range build.Settings {
		switch {
		case setting.Key == "vcs.revision":
			info.Revision = setting.Value + info.Revision
		case setting.Key == "vcs.modified" && setting.Value == "true":
			info.Revision += "-dirty"
		}
	}
	return info
}

// KubeletVersion is what the node reports: a Kubernetes version, so that tools
// which compare it go on working, with ours behind it.
func KubeletVersion() string {
	info := Get()
	return info.Kubernetes + "-vk-" + strings.TrimPrefix(info.Version, "v")
}
