package runtime

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

const ownExecutable = "/proc/self/exe"

// openShim decides what shims are: the configured program or, without one or where it cannot be
// run, this executable.
func (r *Runtime) openShim(program []byte) {
	r.shimPath = ownExecutable
	if len(program) == 0 {
		return
	}
	file, err := sealed(program)
	if err != nil {
		r.logger.WithError(err).Warn("Containers run under this executable, which takes more memory than their own program")
		return
	}
	r.shimFile, r.shimPath = file, "/proc/self/fd/"+strconv.Itoa(int(file.Fd()))
}

// sealed makes a file in memory of a program, which is that of all shims and is in memory once.
// It needs no directory from which programs may be started, and nothing can change it, not even
// a container that runs as root and finds it as its parent's executable.
func sealed(program []byte) (_ *os.File, err error) {
	fd, err := unix.MemfdCreate(shim.Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), shim.Name)
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if _, err := file.Write(program); err != nil {
		return nil, fmt.Errorf("write a file in memory: %w", err)
	}
	if err := file.Chmod(0o500); err != nil {
		return nil, fmt.Errorf("make a file in memory executable: %w", err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, fmt.Errorf("seal a file in memory: %w", err)
	}
	// A kernel may be set not to run such files (vm.memfd_noexec).
	cmd := exec.Command("/proc/self/fd/" + strconv.Itoa(fd))
	cmd.Args, cmd.Env, cmd.Dir = shim.Try(), []string{}, "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run a program in memory: %w: %s", err, out)
	}
	return file, nil
}
