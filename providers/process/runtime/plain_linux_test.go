package runtime_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// plainEnv is set where the tests run as root that may not mount.
const plainEnv = "TEST_WITHOUT_SYS_ADMIN"

// dockerCapabilities are those that container runtimes leave to root by default.
func dockerCapabilities() []int {
	return []int{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD, unix.CAP_NET_RAW,
		unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
		unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
	}
}

// Root that may not mount anything, as in a container that is not privileged, has
// pods with volumes, and so has root with no rights at all.
func TestInAPlainContainerAsRoot(t *testing.T) {
	asRoot(t)
	for name, test := range map[string]struct {
		deprive func() error
		tests   string
	}{
		"with the usual capabilities": {leaving(dockerCapabilities()...), "TestPodWithAVolume|TestVolumesAreOfTheirPodAsRoot|TestEachPodHasAUserAsRoot|" +
			"TestPodUsersAreUsedAgainAsRoot|TestUsersAsRoot|TestSetuidNeedsARight|TestHostileInheritanceAsRoot|TestDefaultsDeny|TestExecInATerminal|TestAttachTerminal"},
		"that may make namespaces but not mount": {denyMounts, "TestPodWithAVolume|TestVolumesAreOfTheirPodAsRoot"},
		"without capabilities":                   {leaving(), "TestPodWithAVolume|TestSetuidNeedsARight|TestExecInATerminal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"-test.run=^(" + test.tests + ")$", "-test.v"}
			if deadline, ok := t.Deadline(); ok {
				args = append(args, "-test.timeout="+(time.Until(deadline)*9/10).String())
			}
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.Env = append(os.Environ(), plainEnv+"=1")
			out, err := outputOf(cmd, test.deprive)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for name := range strings.SplitSeq(test.tests, "|") {
				if !bytes.Contains(out, []byte("--- PASS: "+name+" ")) {
					t.Errorf("%s was not run:\n%s", name, out)
				}
			}
		})
	}
}

// outputOf runs a command that has lost rights.
func outputOf(cmd *exec.Cmd, deprive func() error) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started := make(chan error)
	go func() {
		goruntime.LockOSThread() // until its end: the thread has lost its rights
		err := deprive()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return out.Bytes(), err
}

// leaving takes all capabilities but some from what the thread starts.
func leaving(capabilities ...int) func() error {
	return func() error {
		for n := range unix.CAP_LAST_CAP + 1 {
			if !slices.Contains(capabilities, n) {
				_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0) // the kernel may know fewer
			}
		}
		return nil
	}
}

// denyMounts denies mounts as the profiles of container runtimes do, with all
// capabilities.
func denyMounts() error {
	load := unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}
	program := []unix.SockFilter{load}
	for _, call := range []uint32{unix.SYS_MOUNT, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_UMOUNT2} {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return errno
	}
	return nil
}

// A pod reads and writes its volume with any isolation, and any policy of the
// operator.
func TestPodWithAVolume(t *testing.T) {
	for name, change := range map[string]func(*runtime.Config){
		"defaults":       func(*runtime.Config) {},
		"setuid":         func(c *runtime.Config) { c.AllowSetuid, c.AllowUnconfined = true, true },
		"unconfined":     func(c *runtime.Config) { c.AllowUnconfined = true },
		"without groups": func(c *runtime.Config) { c.CgroupParent = runtime.CgroupsNone },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, change)
			boxConfig := sandboxConfig(filepath.Dir(n.cfg.Root))
			dir := n.volumeOf(boxConfig.Metadata.Uid)
			must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("of the pod\n"), 0o644))
			box, err := n.RunPodSandbox(ctx, boxConfig, "")
			must(t, err)
			const script = "cd ${VIRTUAL_KUBELET_MOUNTS}/data && cat file && echo more > own && cat own"
			config := sh(script + "; exec sleep 1000")
			config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: dir}}
			id := n.in(box, config)
			n.waitLog(id, "more")
			out, errOut, err := n.ExecSync(ctx, id, []string{"sh", "-c", script}, 0)
			if err != nil || string(out) != "of the pod\nmore\n" {
				t.Errorf("%q, %q, %v", out, errOut, err)
			}
		})
	}
}

// The seccomp profile takes the effect from setuid programs unless one may apply it
// without: a configuration that says otherwise is refused.
func TestSetuidNeedsARight(t *testing.T) {
	root := tempDir(t)
	r, err := newRuntime(runtime.Config{Root: root, AllowSetuid: true})
	if err == nil {
		must(t, r.Close(ctx))
	}
	if isolations()[len(isolations())-1] == runtime.IsolationNamespaces {
		must(t, err)
	} else if err == nil || !strings.Contains(err.Error(), "allowUnconfined") {
		t.Errorf("%v", err)
	}
}
