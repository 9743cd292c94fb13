//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pluginFolder is where Debian's containernetworking-plugins are.
const pluginDir = "/usr/lib/cni"

// parts are the programs that are needed, by Debian's name of the package.
var parts = []struct {
	pkg      string
	programs []string
}{
	{"containerd", []string{"containerd", "containerd-shim-runc-v2", "ctr"}},
	{"runc", []string{"runc"}},
	{"containernetworking-plugins", []string{
		filepath.Join(pluginDir, "bridge"),
		filepath.Join(pluginDir, "host-local"),
		filepath.Join(pluginDir, "loopback"),
		filepath.Join(pluginDir, "portmap"),
	}},
	{"iptables", []string{"iptables", "iptables-save"}}, // for portmap
	{"iproute2", []string{"ip"}},
}

// checkInstalled says what the machine lacks.
func checkInstalled() error {
	if os.Geteuid() != 0 {
		return errors.New("containerd needs root for namespaces, mounts and networks: run this as root")
	}
	var missing []string
	for _, part := range parts {
		absent := slices.ContainsFunc(part.programs, func(program string) bool {
			_, err := exec.LookPath(program)
			return err != nil
		})
		if absent {
			missing = append(missing, part.pkg)
		}
	}
	if len(missing) > 0 {
		names := strings.Join(missing, " ")
		return fmt.Errorf("these packages are not installed: %s: run \"make container-tools\", or apt-get install --no-install-recommends %s", names, names)
	}
	return nil
}
