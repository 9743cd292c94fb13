package runtime

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// Directories of a container's directory.
const (
	mountsDir = "mounts" // links to volumes, where nothing can be mounted
	workDir   = "work"   // the working directory, where there is no private root
	tmpDir    = "tmp"    // /tmp of a private root
	varTmpDir = "vartmp" // /var/tmp of a private root
	rootDir   = "root"   // where a private root is put together
)

// mountsEnv names the directory with links to the volumes.
const mountsEnv = "VIRTUAL_KUBELET_MOUNTS"

// mountEnv names the variable with a volume's place on the machine.
func mountEnv(target string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(strings.Trim(target, "/")))
	return "VIRTUAL_KUBELET_MOUNT_" + name
}

// mountsOf checks the mounts of a container of a pod, and follows links, so that what
// is checked is what is mounted.
func (r *Runtime) mountsOf(mounts []*runtimeapi.Mount, box *sandbox) ([]shim.Mount, error) {
	own := r.podDirs(box.config.GetMetadata().GetUid())
	var all []shim.Mount
	for _, m := range mounts {
		if err := r.refuseMount(m); err != nil {
			return nil, err
		}
		target := filepath.Clean(m.GetContainerPath())
		real, err := filepath.EvalSymlinks(m.GetHostPath())
		if err != nil {
			return nil, invalid("the mount at %s: %v", target, err)
		}
		if !filepath.IsAbs(real) {
			return nil, invalid("the mount at %s: %q is no absolute path", target, real)
		}
		if err := r.policy.checkHostPath(real, own); err != nil {
			return nil, err
		}
		all = append(all, shim.Mount{
			Source: real, Target: target,
			Readonly: m.GetReadonly(), Recursive: m.GetRecursiveReadOnly(),
			Slave: m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		})
	}
	return all, nil
}

// namespacesOf says what is private to a container.
func (r *Runtime) namespacesOf(c *container, box *sandbox, mounts []shim.Mount) (*shim.Namespaces, error) {
	n := &shim.Namespaces{
		Root: c.path(rootDir), Tmp: c.path(tmpDir), VarTmp: c.path(varTmpDir), Hostname: box.config.GetHostname(),
		ReadonlyRoot: c.config.GetLinux().GetSecurityContext().GetReadonlyRootfs(),
		Mounts:       slices.Clone(mounts),
	}
	n.Hidden = slices.Concat([]string{r.cfg.Root}, r.policy.volumeDirs, r.cfg.Hidden)
	n.IPC, n.SharedMemory = r.sharedOf(box)
	if sc := c.config.GetLinux().GetSecurityContext(); !sc.GetPrivileged() {
		n.Group = map[string]string{}
		maps.Copy(n.Group, r.groups.Group(c.id))
		n.MaskedPaths, n.ReadonlyPaths = slices.Clone(sc.GetMaskedPaths()), slices.Clone(sc.GetReadonlyPaths())
	}
	for target, name := range map[string]string{"/etc/resolv.conf": resolvFile, "/etc/hostname": hostnameFile} {
		taken := slices.ContainsFunc(mounts, func(m shim.Mount) bool { return m.Target == target })
		if source := box.path(name); !taken && exists(source) {
			n.Mounts = append(n.Mounts, shim.Mount{Source: source, Target: target})
		}
	}
	return n, r.choosePIDs(n, c, box)
}

// choosePIDs says which processes the container sees.
func (r *Runtime) choosePIDs(n *shim.Namespaces, c *container, box *sandbox) error {
	options := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	mode := runtimeapi.NamespaceMode_CONTAINER
	if options != nil {
		mode = options.GetPid()
	}
	switch {
	case mode == runtimeapi.NamespaceMode_TARGET:
		target, err := r.container(options.GetTargetId())
		if err != nil {
			return err
		}
		started, running := target.running()
		if !running || target.sandbox != box.id {
			return invalid("container %s, whose processes are to be seen, does not run in this pod", options.GetTargetId())
		}
		n.JoinPID = &shim.Target{PID: started.PID, Start: started.Start}
	case r.cfg.SharedPIDs:
	case mode == runtimeapi.NamespaceMode_NODE:
		if !r.policy.hostPID {
			return denied("seeing the processes of the machine (hostPID) is not allowed on this node: its operator may set allowHostPID")
		}
	case mode == runtimeapi.NamespaceMode_POD:
		return invalid("containers of a pod cannot share their processes (shareProcessNamespace) on this node, unless its operator sets sharedPIDs")
	default:
		n.PID = true
	}
	return nil
}

// workingDirOf is where the command starts: a path of the container. It reports whether that
// may be made: not elsewhere on the machine.
func (r *Runtime) workingDirOf(c *container, stands *standIn, mounts []shim.Mount) (dir string, mayMake bool, err error) {
	dir = c.config.GetWorkingDir()
	private := r.isolation == IsolationNamespaces
	switch {
	case dir == "" && stands.WorkingDir != "":
		return stands.WorkingDir, false, nil
	case dir == "" && private:
		return "/", false, nil
	case dir == "":
		return c.path(workDir), false, nil
	case !filepath.IsAbs(dir):
		return "", false, invalid("the working directory %q is no absolute path", dir)
	}
	dir = filepath.Clean(dir)
	host, inVolume := translate(dir, mounts)
	switch {
	case inVolume && private:
		return dir, true, nil
	case inVolume:
		return host, true, nil
	case dir == "/" || below("/tmp", dir) || r.policy.workingDirs.contain(dir):
		return dir, private && below("/tmp", dir), nil
	}
	return "", false, denied("the working directory %s is not allowed on this node: use one in a volume, or have its operator add it to workingDirs", dir)
}

// makeFolders makes what a container needs in its directory (dir: it has a temporary
// name at first).
func (r *Runtime) makeDirs(dir string, spec *shim.Spec) error {
	if n := spec.Namespaces; n != nil {
		return errors.Join(os.Mkdir(filepath.Join(dir, rootDir), 0o755),
			mkdirFor(filepath.Join(dir, tmpDir), os.ModeSticky|0o777, nil), mkdirFor(filepath.Join(dir, varTmpDir), os.ModeSticky|0o777, nil))
	}
	if err := mkdirFor(filepath.Join(dir, workDir), 0o700, spec.Command.User); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(dir, mountsDir), 0o755)
}

// mkdirFor makes a directory of a user, regardless of the umask.
func mkdirFor(dir string, mode os.FileMode, user *shim.User) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if user != nil {
		if err := os.Chown(dir, int(user.UID), int(user.GID)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, mode)
}

// linkMounts makes a link for each volume, laid out as the mount paths are. One in
// another volume gets none: the link would have to be made in there.
func linkMounts(dir string, mounts []shim.Mount) error {
	sorted := slices.Clone(mounts)
	slices.SortFunc(sorted, func(a, b shim.Mount) int { return strings.Compare(a.Target, b.Target) })
	var made []string
	for _, m := range sorted {
		if slices.ContainsFunc(made, func(outer string) bool { return below(outer, m.Target) }) {
			continue
		}
		made = append(made, m.Target)
		link := filepath.Join(dir, m.Target)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(m.Source, link); err != nil {
			return fmt.Errorf("link for the mount at %s: %w", m.Target, err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
