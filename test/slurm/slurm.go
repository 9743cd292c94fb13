// Package slurm starts a real Slurm of one machine for a test: munged, slurmctld and slurmd
// of the distribution's packages, in a directory of their own. It needs root, and "make
// slurm-tools".
package slurm

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
)

// Cluster is a Slurm of one machine, with ports of its own.
type Cluster struct {
	// Dir has its files, and Dir/pods is for those of pods. Conf is slurm.conf.
	Dir, Conf string
	// StopController ends slurmctld.
	StopController func()
}

// Start starts a cluster, which ends with the test.
func Start(t *testing.T) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurm-") // a short one: it has a socket
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: dir, Conf: filepath.Join(dir, "slurm.conf")}
	t.Cleanup(func() {
		if t.Failed() {
			for _, pattern := range []string{"*.log", "pods/*/state", "pods/*/slurm.out", "pods/*/logs/*/*"} {
				names, _ := filepath.Glob(filepath.Join(dir, pattern))
				for _, name := range names {
					log, _ := os.ReadFile(name)
					t.Logf("%s:\n%s", name, log[max(0, len(log)-1500):])
				}
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	must(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"state", "spool", "pods"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	key := make([]byte, 1024)
	_, _ = rand.Read(key) // never fails
	must(t, os.WriteFile(filepath.Join(dir, "key"), key, 0o400))
	// More processors than there are: pods wait for each other otherwise. And more time than by
	// default, on a busy machine, until a job that starts counts as missing.
	must(t, os.WriteFile(c.Conf, fmt.Appendf(nil, `ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmUser=root
SlurmctldPort=%[3]d
SlurmdPort=%[4]d
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.sock
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
AccountingStorageType=accounting_storage/none
MinJobAge=3600
KillWait=60
BatchStartTimeout=120
OverTimeLimit=0
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd.pid
SlurmctldLogFile=%[2]s/slurmctld.log
SlurmdLogFile=%[2]s/slurmd.log
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=64 RealMemory=4000
PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
`, host, dir, FreePort(t), FreePort(t)), 0o644))
	at := func(name string) string { return filepath.Join(dir, name) }
	c.Launch(t, "munged", "--foreground", "--force", "--key-file="+at("key"), "--socket="+at("munge.sock"),
		"--pid-file="+at("munge.pid"), "--log-file="+at("munge.log"), "--seed-file="+at("seed"))
	c.Until(t, "munged has its socket", func() bool { _, err := os.Stat(at("munge.sock")); return err == nil })
	c.StopController = c.Launch(t, "slurmctld", "-D", "-f", c.Conf)
	c.Launch(t, "slurmd", "-D", "-f", c.Conf)
	c.Until(t, "the node is idle", func() bool {
		out, _ := c.Command(t, "sinfo", "--noheader", "--partition=normal", "--format=%T").Output()
		return strings.TrimSpace(string(out)) == "idle"
	})
	t.Cleanup(func() { // before the daemons end
		_ = c.Command(t, "scancel", "--user=root").Run()
		c.Until(t, "no job is left", func() bool {
			out, err := c.Command(t, "squeue", "--noheader").Output()
			return err != nil || len(out) == 0
		})
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FreePort returns a port that nothing listens on.
func FreePort(t *testing.T) int {
	t.Helper()
	ports, err := daemon.FreePorts(1)
	must(t, err)
	return ports[0]
}

// Launch starts a daemon that ends with the test, and returns what stops it before.
func (c *Cluster) Launch(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("run make slurm-tools: %v", err)
	}
	log, err := os.Create(filepath.Join(c.Dir, name+".out"))
	must(t, err)
	p, err := daemon.Launch(exec.Command(path, args...), log) //nolint:noctx // Stop ends it
	must(t, err)
	stop = sync.OnceFunc(func() {
		_ = p.Stop(syscall.SIGTERM) // some end with an exit code
		must(t, log.Close())
	})
	t.Cleanup(stop)
	return stop
}

// Command is a command of Slurm.
func (c *Cluster) Command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Env = append(cmd.Environ(), "SLURM_CONF="+c.Conf)
	return cmd
}

// Run runs a command of Slurm, and returns its output.
func (c *Cluster) Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := c.Command(t, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// hung is how long what does not happen is waited for. Nothing fails because it is slow:
// on a machine with other work Slurm's daemons may answer after half a minute.
const hung = 5 * time.Minute

// Until waits until something is so.
func (c *Cluster) Until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hung); !f(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is not so that %s", hung, what)
		}
	}
}
