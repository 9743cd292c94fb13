package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// The containers of a pod share its IPC namespace and its /dev/shm. Both are mounts in
// Root/shared/SANDBOX, so that they need no process to hold them: they are there from
// the first start of a container until the sandbox is stopped, also if the
// containers or this program end meanwhile.
const (
	sharedDir  = "shared"
	ipcFile    = "ipc"
	memoryDir  = "shm"
	memorySize = "64m" // as container runtimes have it
)

// machineMemory is the machine's shared memory, for pods with hostIPC.
const machineMemory = "/dev/shm"

func (r *Runtime) sharedPath(elements ...string) string {
	return filepath.Join(append([]string{r.cfg.Root, sharedDir}, elements...)...)
}

// sharedOf are the file with a pod's IPC namespace, which is empty for the machine's,
// and the directory with its shared memory. pinShared makes them.
func (r *Runtime) sharedOf(box *sandbox) (ipc, memory string) {
	if box.hostIPC() {
		if memory, err := filepath.EvalSymlinks(machineMemory); err == nil {
			return "", memory
		}
		return "", r.sharedPath(box.id, memoryDir)
	}
	return r.sharedPath(box.id, ipcFile), r.sharedPath(box.id, memoryDir)
}

func (b *sandbox) hostIPC() bool {
	return b.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetIpc() == runtimeapi.NamespaceMode_NODE
}

// pinShared makes what the containers of a sandbox share, where it is not there yet.
func (r *Runtime) pinShared(box *sandbox) error {
	if r.isolation != IsolationNamespaces {
		return nil
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.stopped {
		return status.Errorf(codes.FailedPrecondition, "sandbox %s was stopped", box.id)
	}
	if err := os.MkdirAll(r.sharedPath(box.id, memoryDir), 0o700); err != nil {
		return err
	}
	if err := pin(r.sharedPath(box.id, memoryDir), mountMemory); err != nil {
		return fmt.Errorf("shared memory of the pod: %w", err)
	}
	file, err := os.OpenFile(r.sharedPath(box.id, ipcFile), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	_ = file.Close()
	return pin(r.sharedPath(box.id, ipcFile), shim.PinIPC)
}

// pin calls mount unless something is mounted at a path.
func pin(path string, mount func(path string) error) error {
	if mounted, err := isMounted(path); mounted || err != nil {
		return err
	}
	return mount(path)
}

func mountMemory(dir string) error {
	return unix.Mount("shm", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,size="+memorySize)
}

// unpinShared lets go of what the containers of a sandbox share. It is gone with the
// last process that uses it.
func (r *Runtime) unpinShared(id string) error {
	if !exists(r.sharedPath(id)) {
		return nil
	}
	paths := []string{r.sharedPath(id, ipcFile), r.sharedPath(id, memoryDir)}
	for _, path := range paths {
		mounted, err := isMounted(path)
		if err == nil && mounted {
			err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if err == nil || errors.Is(err, os.ErrNotExist) {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("release what the pod's containers share: %w", err)
		}
	}
	return os.Remove(r.sharedPath(id))
}

// collectShared lets go of what is shared in sandboxes that are not there or have
// been stopped: a removal may have been cut off.
func (r *Runtime) collectShared() {
	entries, _ := os.ReadDir(r.sharedPath())
	for _, e := range entries {
		if box, err := r.sandbox(e.Name()); err == nil && !box.isStopped() {
			continue
		}
		if err := r.unpinShared(e.Name()); err != nil {
			r.logger.WithError(err).WithField("sandbox", e.Name()).Warn("Cannot release what the containers of a sandbox shared")
		}
	}
}

// isMounted reports whether something is mounted at a path.
func isMounted(path string) (bool, error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &stat); err != nil {
		return false, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
