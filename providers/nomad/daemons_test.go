//go:build integration

package nomad

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// testImage has what the shells of tests need.
const testImage = "localhost/busybox:test"

// realNomad is a Nomad of one machine that really runs, server and client in one, with a
// Docker of its own. It needs root, "make nomad" and "make nomad-tools".
type realNomad struct {
	t            *testing.T // at whose end it ends
	dir, address string
	config       string // of the agent
	docker       string // the address of its Docker
	agent        *daemon.Process
	client       *api.Client
	acl          bool // rights are still to be given
}

// startNomad starts a Nomad, which ends with the test. Extra is added to the agent's
// configuration.
func startNomad(t *testing.T, extra string) *realNomad {
	t.Helper()
	dir, err := os.MkdirTemp("", "nomad-") // a short one: it has sockets
	must(t, err)
	n := &realNomad{t: t, dir: dir, config: filepath.Join(dir, "agent.hcl")}
	t.Cleanup(func() { n.remove(t) })
	n.startDocker(t)
	ports, err := daemon.FreePorts(3)
	must(t, err)
	n.address = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	must(t, os.WriteFile(n.config, fmt.Appendf(nil, `data_dir = "%[1]s/data"
bind_addr = "127.0.0.1"
disable_update_check = true
ports {
  http = %[2]d
  rpc  = %[3]d
  serf = %[4]d
}
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
server {
  enabled          = true
  bootstrap_expect = 1
}
client {
  enabled           = true
  servers           = ["127.0.0.1:%[3]d"]
  cni_path          = "/usr/lib/cni"
  max_kill_timeout  = "5m"
  cpu_total_compute = 64000 # pods wait for each other otherwise
  memory_total_mb   = 64000
  # The logs of what has ended stay, however full the disk of the machine is.
  gc_disk_usage_threshold  = 100
  gc_inode_usage_threshold = 100
  gc_max_allocs            = 1000
}
plugin "docker" {
  config {
    endpoint         = "%[5]s"
    allow_privileged = true
    infra_image      = "%[6]s"
    gc {
      image = false
    }
  }
}
%[7]s`, dir, ports[0], ports[1], ports[2], n.docker, testImage, extra), 0o600))
	n.client, err = api.NewClient(&api.Config{Address: n.address})
	must(t, err)
	n.acl = strings.Contains(extra, "acl {")
	n.startAgent()
	return n
}

// command is one of the client of Docker.
func (n *realNomad) command(t *testing.T, args ...string) *exec.Cmd {
	return exec.CommandContext(context.WithoutCancel(t.Context()), "docker", append([]string{"--host", n.docker}, args...)...)
}

// startDocker starts a dockerd with the test's image.
func (n *realNomad) startDocker(t *testing.T) {
	t.Helper()
	n.docker = "unix://" + filepath.Join(n.dir, "docker.sock")
	n.launch(t, "dockerd", "--host", n.docker, "--data-root", filepath.Join(n.dir, "docker"), "--exec-root", filepath.Join(n.dir, "run"),
		"--pidfile", filepath.Join(n.dir, "docker.pid"), "--bridge", "none", "--iptables=false", "--ip-masq=false")
	until(t, "dockerd answers", func() bool { return n.command(t, "version").Run() == nil })
	t.Cleanup(func() { // before dockerd ends, which leaves them
		if out, err := n.command(t, "ps", "--all", "--quiet").Output(); err == nil && len(out) > 0 {
			_ = n.command(t, append([]string{"rm", "--force"}, strings.Fields(string(out))...)...).Run()
		}
	})
	root := filepath.Join(n.dir, "root")
	must(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	must(t, os.Mkdir(filepath.Join(root, "tmp"), 0o777))
	must(t, os.Chmod(filepath.Join(root, "tmp"), 0o777))
	busybox, err := os.ReadFile("/bin/busybox")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "bin", "busybox"), busybox, 0o755))
	applets, err := exec.CommandContext(t.Context(), "/bin/busybox", "--list").Output()
	must(t, err)
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			must(t, os.Symlink("busybox", filepath.Join(root, "bin", applet)))
		}
	}
	tar := exec.CommandContext(t.Context(), "tar", "-C", root, "-c", ".")
	load := n.command(t, "import", "--change", `CMD ["sleep", "infinity"]`, "-", testImage)
	load.Stdin, err = tar.StdoutPipe()
	must(t, err)
	must(t, tar.Start())
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker import: %v: %s", err, out)
	}
	must(t, tar.Wait())
}

func (n *realNomad) startAgent() {
	t := n.t
	t.Helper()
	binary, err := filepath.Abs(filepath.Join("..", "..", "bin", "nomad"))
	must(t, err)
	n.agent = n.launch(t, binary, "agent", "-config", n.config)
	t.Cleanup(n.stopAgent)
	until(t, "Nomad's machine is ready", func() bool {
		if n.acl {
			token, _, err := n.client.ACLTokens().Bootstrap(nil)
			if err != nil {
				return false
			}
			n.client.SetSecretID(token.SecretID)
			n.acl = false
		}
		nodes, _, err := n.client.Nodes().List(nil)
		return err == nil && len(nodes) == 1 && nodes[0].Status == api.NodeStatusReady && nodes[0].Drivers["docker"] != nil && nodes[0].Drivers["docker"].Healthy
	})
}

// stopAgent removes all jobs, and what the machine has of them, and ends the agent.
func (n *realNomad) stopAgent() {
	if n.agent == nil {
		return // it was the one before
	}
	jobs, _, err := n.client.Jobs().List(nil)
	if err != nil {
		n.t.Error(err)
	}
	for _, job := range jobs {
		_, _, _ = n.client.Jobs().Deregister(job.ID, true, nil) // the machine is cleaned up below in any case
	}
	_ = n.client.System().GarbageCollect()
	_ = n.agent.Stop(syscall.SIGINT)
	n.agent = nil
}

// launch starts a daemon that ends with the test, if it has not ended before.
func (n *realNomad) launch(t *testing.T, name string, args ...string) *daemon.Process {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("run make nomad-tools nomad: %v", err)
	}
	log, err := os.OpenFile(filepath.Join(n.dir, filepath.Base(name)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	p, err := daemon.Launch(exec.Command(path, args...), log) //nolint:noctx // Stop ends it
	must(t, err)
	t.Cleanup(func() {
		_ = p.Stop(syscall.SIGTERM) // some end with an exit code
		_ = log.Close()
	})
	return p
}

// remove removes the directory, and what is mounted in it.
func (n *realNomad) remove(t *testing.T) {
	t.Helper()
	if t.Failed() {
		for _, name := range []string{"dockerd.log", "nomad.log"} {
			log, err := os.ReadFile(filepath.Join(n.dir, name))
			if err != nil {
				t.Error(err)
			}
			t.Logf("%s:\n%s", name, log[max(0, len(log)-6000):])
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	lines := strings.Split(string(mounts), "\n")
	slices.Reverse(lines) // the inner ones first
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], n.dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
	// What Nomad starts beside a container outlives it by a moment, in which it may still write.
	until(t, "the directory is removed", func() bool { return os.RemoveAll(n.dir) == nil })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !f(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes it is not so that %s", what)
		}
	}
}
