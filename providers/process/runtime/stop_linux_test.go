package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

const onSignal = `trap 'echo got TERM; exit 7' TERM
trap 'echo got USR1; exit 8' USR1
echo ready
while :; do sleep 0.05; done`

func TestStopSignals(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for signal, code := range map[runtimeapi.Signal]int32{
			runtimeapi.Signal_RUNTIME_DEFAULT: 7, runtimeapi.Signal_SIGTERM: 7, runtimeapi.Signal_SIGUSR1: 8,
		} {
			config := sh(onSignal)
			config.StopSignal = signal
			id := n.start(config)
			n.waitLog(id, "ready")
			must(t, n.StopContainer(ctx, id, 20))
			if s := n.status(id); s.ExitCode != code || s.State != runtimeapi.ContainerState_CONTAINER_EXITED {
				t.Errorf("%v: %v", signal, s)
			}
		}
	})
}

// A shim that cannot be reached for a while gets the signal later, once.
func TestStopSignalIsSentLater(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh(onSignal))
		n.waitLog(id, "ready")
		socket := filepath.Join(n.cfg.Root, "containers", id, shim.SocketFile)
		must(t, os.Rename(socket, socket+".away"))
		back := time.AfterFunc(300*time.Millisecond, func() { _ = os.Rename(socket+".away", socket) })
		defer back.Stop()
		must(t, n.StopContainer(ctx, id, 60))
		if s := n.status(id); s.ExitCode != 7 {
			t.Errorf("%v", s)
		}
		if out, _ := n.logs(id); strings.Count(out, "got TERM") != 1 {
			t.Errorf("wrote %q", out)
		}
	})
}

// What does not end by itself is killed after its time, with everything in it.
func TestGracePeriod(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh(`trap 'echo got TERM' TERM; echo ready; while :; do sleep 0.05; done`))
		n.waitLog(id, "ready")
		const grace = 10 // as the container may take long to say that it was asked
		began := time.Now()
		must(t, n.StopContainer(ctx, id, grace))
		if took := time.Since(began); took < grace*time.Second {
			t.Errorf("it took %s", took)
		}
		if s := n.status(id); s.ExitCode != 137 {
			t.Errorf("exit code %d", s.ExitCode)
		}
		if out, _ := n.logs(id); !strings.Contains(out, "got TERM") {
			t.Errorf("wrote %q", out)
		}
	})
}

// A stop without grace does not wait for one with it.
func TestStopIsOvertaken(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh(`trap '' TERM; echo ready; while :; do sleep 0.05; done`))
		n.waitLog(id, "ready")
		var wg sync.WaitGroup
		wg.Go(func() { _ = n.StopContainer(ctx, id, 600) })
		must(t, n.StopContainer(ctx, id, 0))
		wg.Wait()
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		stays := n.start(sh(`trap '' TERM; echo ready; while :; do sleep 0.05; done`))
		n.waitLog(stays, "ready")
		if err := n.StopContainer(short, stays, 600); err == nil {
			t.Error("no error although the context ended first")
		}
	})
}

// All that descends from a container ends with it, however it hides.
func TestDaemonsAreKilled(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		script := `(setsid sh -c 'trap "" TERM HUP; sleep 1000' >/dev/null 2>&1 &)
(setsid env -i sleep 1000 >/dev/null 2>&1 &)
sh -c 'nohup sleep 1000 >/dev/null 2>&1 &'
echo ready
` + "%s"
		for _, end := range []string{"exec sleep 1000", "exit 0"} {
			id := n.start(sh(strings.Replace(script, "%s", end, 1)))
			shimPID := n.started(id).ShimPID
			var below []procfs.Process
			if end == "exit 0" {
				n.ended(id)
			} else {
				n.waitLog(id, "ready")
				eventually(t, "four processes", func() bool {
					all, err := procfs.All()
					must(t, err)
					below = procfs.Below(all, func(p procfs.Process) bool { return p.PID == shimPID })
					return len(below) >= 4
				})
				must(t, n.StopContainer(ctx, id, 0))
			}
			for _, p := range below {
				if procfs.Alive(p.PID, p.Start) {
					t.Errorf("process %d is left", p.PID)
				}
			}
		}
	})
}

// A container whose shim was killed has ended, and nothing of it is left.
func TestShimIsKilled(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh(`sh -c 'sleep 1001 & sleep 1002' & setsid sleep 1003 & echo ready; wait`))
		n.waitLog(id, "ready")
		started := n.started(id)
		must(t, procfs.Kill(started.ShimPID, started.ShimStart, unix.SIGKILL))
		n.checkLost(id, started)
		must(t, n.RemoveContainer(ctx, id))
	})
}

func (n *node) checkLost(id string, started shim.Started) {
	n.t.Helper()
	s := n.ended(id)
	if s.ExitCode != 137 || s.Reason != "ContainerStatusUnknown" || s.FinishedAt == 0 || s.StartedAt == 0 {
		n.t.Errorf("%v", s)
	}
	if procfs.Alive(started.PID, started.Start) {
		n.t.Errorf("process %d still runs", started.PID)
	}
	n.checkProcesses(map[string]bool{shim.MarkerEnv + "=" + id: true})
}

// The same while there was no runtime to see it.
func TestShimIsKilledMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh(`sleep 1001 & setsid sleep 1003 & echo ready; wait`))
		n.waitLog(id, "ready")
		started := n.started(id)
		must(t, n.Close(ctx))
		must(t, procfs.Kill(started.ShimPID, started.ShimStart, unix.SIGKILL))
		n.open()
		n.checkLost(id, started)
		n.reopen()
		if s := n.status(id); s.Reason != "ContainerStatusUnknown" {
			t.Errorf("%v", s)
		}
	})
}

// A shim that does not answer is killed, and its container with it.
func TestShimHangs(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		must(t, unix.Kill(n.started(id).ShimPID, unix.SIGSTOP))
		must(t, n.StopContainer(ctx, id, 1))
		n.checkLost(id, n.started(id))
	})
}

// A shim that answers late, as on a busy machine, ends its container, and says how it did.
func TestShimIsLate(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		shimPID := n.started(id).ShimPID
		must(t, unix.Kill(shimPID, unix.SIGSTOP))
		late := time.AfterFunc(5*time.Second, func() { _ = unix.Kill(shimPID, unix.SIGCONT) }) // later than an answer is waited for
		defer late.Stop()
		must(t, n.StopContainer(ctx, id, 0))
		if s := n.ended(id); s.ExitCode != 137 || s.Reason == "ContainerStatusUnknown" {
			t.Errorf("%v", s)
		}
	})
}

// Containers run on without the runtime, and are adopted.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		dir := n.volume()
		stays := n.start(sh("echo before; while [ ! -e go ]; do sleep 0.02; done; echo after; exec sleep 1000"))
		config := sh("echo before; while [ ! -e $GO ]; do sleep 0.02; done; exit 5")
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volume", HostPath: dir}}
		config.Envs = []*runtimeapi.KeyValue{{Key: "GO", Value: []byte(n.mounted(dir, "/volume") + "/go")}}
		ends := n.start(config)
		created := n.create(sh("exit 4"))
		done := n.start(sh("exit 6"))
		n.ended(done)
		before := map[string]*runtimeapi.ContainerStatus{stays: n.status(stays), created: n.status(created), done: n.status(done)}
		pid := n.started(stays).PID
		must(t, n.Close(ctx))
		must(t, os.WriteFile(dir+"/go", nil, 0o644))
		time.Sleep(100 * time.Millisecond)
		n.open()
		if s := n.ended(ends); s.ExitCode != 5 || s.Reason != "Error" {
			t.Errorf("the one that ended meanwhile: %v", s)
		}
		for id, was := range before {
			if is := n.status(id); is.State != was.State || is.StartedAt != was.StartedAt || is.FinishedAt != was.FinishedAt ||
				is.ExitCode != was.ExitCode || is.Metadata.Name != was.Metadata.Name || is.LogPath != was.LogPath {
				t.Errorf("was %v\nis %v", was, is)
			}
		}
		if now := n.started(stays).PID; now != pid || !alive(pid) {
			t.Errorf("process %d became %d", pid, now)
		}
		must(t, n.StartContainer(ctx, created))
		if s := n.ended(created); s.ExitCode != 4 {
			t.Errorf("%v", s)
		}
		if _, _, err := n.ExecSync(ctx, stays, []string{"sh", "-c", "exit 0"}, 0); err != nil {
			t.Errorf("exec after a restart: %v", err)
		}
		must(t, n.StopContainer(ctx, stays, 0))
	})
}

// mounted is where a process of a container finds a volume.
func (n *node) mounted(source, target string) string {
	if n.cfg.Isolation == "none" {
		return source
	}
	return target
}

// Only one runtime at a time uses a root.
func TestOneRuntimeForARoot(t *testing.T) {
	n := newNode(t)
	if _, err := newRuntime(n.cfg); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second runtime: %v", err)
	}
}

// Many at once, from many sides.
func TestConcurrently(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				box, err := n.RunPodSandbox(ctx, sandboxConfig(n.cfg.Root), "")
				if err != nil {
					t.Error(err)
					return
				}
				for i := range 4 {
					wg.Go(func() { n.useOne(box, i) })
				}
				wg.Go(func() { _, _ = n.ListContainerStats(ctx, nil); _, _ = n.ListPodSandboxStats(ctx, nil) })
			})
		}
		wg.Wait()
	})
}

func (n *node) useOne(box string, i int) {
	id, err := n.CreateContainer(ctx, box, sh("echo ready; exec sleep 1000"), nil)
	if err != nil {
		n.t.Error(err)
		return
	}
	var wg sync.WaitGroup
	// One of them starts it.
	started := make(chan error, 2)
	for range 2 {
		wg.Go(func() { started <- n.StartContainer(ctx, id) })
	}
	wg.Wait()
	if a, b := <-started, <-started; (a == nil) == (b == nil) {
		n.t.Errorf("two starts: %v and %v", a, b)
	}
	out, _, err := n.ExecSync(ctx, id, []string{"sh", "-c", "echo " + strconv.Itoa(i)}, 0)
	if err != nil || string(out) != strconv.Itoa(i)+"\n" {
		n.t.Errorf("%q, %v", out, err)
	}
	for range 2 {
		wg.Go(func() {
			if err := n.StopContainer(ctx, id, 0); err != nil {
				n.t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := n.RemoveContainer(ctx, id); err != nil {
		n.t.Error(err)
	}
}
