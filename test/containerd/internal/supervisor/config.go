//go:build linux

package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// config is what the files that containerd reads are made of.
type config struct {
	Dir          string
	SandboxImage string
	Mirror       string
	Plugins      string
	Network      network

	Runc          string
	SystemdCgroup bool
}

// socket is short: names of Unix sockets end at 107 bytes.
func (c config) socket() string { return filepath.Join(c.Dir, "containerd.sock") }
func (c config) file() string   { return filepath.Join(c.Dir, "config.toml") }

// containerdTemplate is the configuration of containerd 1.6. Of the settings
// that are no paths:
//
//   - restrict_oom_score_adj, because root without CAP_SYS_RESOURCE may not
//     lower an OOM score, and then no sandbox starts;
//   - enable_unprivileged_ports and _icmp, as clusters have it: users other than
//     root listen on port 80 and ping;
//   - netns_mounts_under_state_dir, so that all mounts are below one directory.
var containerdTemplate = template.Must(template.New("").Parse(`version = 2
root = "{{.Dir}}/root"
state = "{{.Dir}}/state"
disabled_plugins = ["io.containerd.internal.v1.restart"]

[grpc]
  address = "{{.Dir}}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.SandboxImage}}"
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Plugins}}"
    conf_dir = "{{.Dir}}/net.d"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Dir}}/registries"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{{.Dir}}/runc"
      SystemdCgroup = {{.SystemdCgroup}}
{{- if .Runc}}
      BinaryName = "{{.Runc}}"
{{- end}}
`))

// networkTemplate lacks isGateway: the bridge has its address already, and with
// it the plugin would switch on forwarding for the whole machine.
var networkTemplate = template.Must(template.New("").Parse(`{
  "cniVersion": "0.4.0",
  "name": "{{.Network.Name}}",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "{{.Network.Name}}",
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "{{.Dir}}/ipam",
        "ranges": [[{"subnet": "{{.Network.Subnet}}", "gateway": "{{.Network.Gateway}}"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
`))

// registryTemplate says where to pull from, for any host.
var registryTemplate = template.Must(template.New("").Parse(`[host."{{.Mirror}}"]
  capabilities = ["pull", "resolve"]
`))

func (c config) write() error {
	files := map[string]*template.Template{
		"config.toml":       containerdTemplate,
		"net.d/10.conflist": networkTemplate,
	}
	if c.Mirror != "" {
		files["registries/_default/hosts.toml"] = registryTemplate
	}
	var errs []error
	for name, t := range files {
		var text bytes.Buffer
		path := filepath.Join(c.Dir, name)
		errs = append(errs,
			t.Execute(&text, c),
			os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, text.Bytes(), 0o644),
		)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write containerd's configuration: %w", err)
	}
	return nil
}
