package runtime

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// lookup finds the binary of a command, as it is called in the container, and
// reports whether it may be run. That there is none is codes.NotFound.
func (r *Runtime) lookup(command shim.Command, mounts []shim.Mount) (string, error) {
	name := command.Args[0]
	if name == "" {
		return "", invalid("the command is an empty string")
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(command.Dir, name)
		}
		host, inVolume := r.onMachine(name, mounts)
		switch is, err := executable(host); {
		case err != nil:
			return "", err
		case !is:
			return "", status.Errorf(codes.NotFound, "the machine has no program %s", host)
		}
		return name, r.policy.checkBinary(host, inVolume)
	}
	var failed error // of a directory in which it may be
	search := getenv(command.Env, "PATH")
	for _, dir := range filepath.SplitList(search) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		host, inVolume := r.onMachine(path, mounts)
		is, err := executable(host)
		if is {
			return path, r.policy.checkBinary(host, inVolume)
		}
		failed = cmp.Or(failed, err)
	}
	if failed != nil {
		return "", failed
	}
	return "", status.Errorf(codes.NotFound, "the machine has no program %q in the PATH %s: what a command names must be installed, since images are not pulled", name, search)
}

// onMachine says where a path of a container is on the machine, and whether that
// is in one of its volumes.
func (r *Runtime) onMachine(path string, mounts []shim.Mount) (host string, inVolume bool) {
	path = filepath.Clean(path)
	if r.isolation != IsolationNamespaces {
		return path, false
	}
	if host, inVolume = translate(path, mounts); inVolume {
		return host, true
	}
	// A directory that is a link on the machine (/bin to /usr/bin) may lead into a
	// volume.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		if real, in := translate(filepath.Join(dir, filepath.Base(path)), mounts); in {
			return real, true
		}
	}
	return path, false
}

// translate follows the innermost mount that a path is in.
func translate(path string, mounts []shim.Mount) (string, bool) {
	var best *shim.Mount
	for i, m := range mounts {
		if below(m.Target, path) && (best == nil || len(m.Target) >= len(best.Target)) {
			best = &mounts[i]
		}
	}
	if best == nil {
		return path, false
	}
	return filepath.Join(best.Source, strings.TrimPrefix(path, best.Target)), true
}

// executable reports whether there is a program. An error says that this is not known, as of a file
// system over the network: that there is none is final for a container that is not restarted.
func executable(path string) (bool, error) {
	info, err := os.Stat(path)
	for _, none := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EACCES} {
		if errors.Is(err, none) {
			return false, nil
		}
	}
	if err != nil {
		return false, status.Errorf(codes.Unavailable, "whether the machine has a program is not known: %v", err)
	}
	return info.Mode().IsRegular() && info.Mode()&0o111 != 0, nil
}
