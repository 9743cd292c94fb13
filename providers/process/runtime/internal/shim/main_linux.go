package shim

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main is the main function of the executable when it was started as a shim,
// which its name shows. It returns the exit code.
func Main(args []string) int {
	if len(args) < 2 {
		return 2
	}
	switch args[1] {
	case "container":
		if len(args) < 3 {
			return 2
		}
		return runContainer(args[2])
	case "init":
		return runInit()
	case "probe":
		if err := probe(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			return 1
		}
		return 0
	case "try":
		return 0
	}
	return 2
}

// probe tries, in a mount namespace of its own, the mounts that a private root takes: a
// security module or a filter of system calls may deny them although namespaces can be
// had.
func probe() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("change how mounts are propagated: %w", err)
	}
	at, err := openSource("/proc")
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	tree, err := newFileSystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "size", "4k")
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	if err := change(tree, true, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	if err := attach(tree, at); err != nil {
		return err
	}
	terminals, err := newTerminals()
	closeAll(terminals)
	return err
}

// The files that a shim is given, after its streams. lockFD is the lock of the
// container's directory.
const (
	lockFD = 3 + iota
	reportFD
)

// Args are the arguments of the shim for a container's directory. It must be given
// the lock of the directory and a pipe for its report: a line, which is empty if the
// command runs, and else says why it does not.
func Args(dir string) []string { return []string{Name, "container", dir} }

// Probe are the arguments of a process that tries, in new namespaces, whether a private
// root can be had. It says on its stderr why not.
func Probe() []string { return []string{Name, "probe"} }

// Try are the arguments of a process that does nothing, which shows that it can be started.
func Try() []string { return []string{Name, "try"} }

// runContainer is the life of a shim.
func runContainer(dir string) int {
	unix.CloseOnExec(lockFD)
	unix.CloseOnExec(reportFD)
	closeInherited(reportFD + 1)
	// Caught, not ignored: what is ignored stays so in the commands.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE)
	report := os.NewFile(reportFD, "report")
	s, err := newServer(dir)
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		s.fail(err)
		_, _ = report.WriteString(err.Error() + "\n")
		return 1
	}
	_, _ = report.WriteString("\n")
	_ = report.Close()
	s.wait()
	return 0
}

// process says how the command is started: always in a session of its own, with
// a terminal if that is asked for. The init itself sees to it that it dies with
// the shim.
func process(tty bool, cloneflags uintptr) syscall.SysProcAttr {
	return syscall.SysProcAttr{Setsid: true, Setctty: tty, Ctty: 0, Cloneflags: cloneflags}
}
