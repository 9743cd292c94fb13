package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is what the kernel counts CPU time and start times in. It is
// 100 on every architecture that Go runs on (USER_HZ, not the kernel's HZ).
const ticksPerSecond = 100

// Process is one line of /proc/PID/stat.
type Process struct {
	PID, Parent, Group, Session int
	// State is the letter of ps: R, S, D, Z, T and so on.
	State byte
	// Start is when the process started, in ticks since boot. A number and a
	// start together are one process, until the machine boots again.
	Start uint64
	// CPU is what the process used, Waited what those of its children used that
	// it has waited for; both in nanoseconds.
	CPU, Waited uint64
	// RSS is the resident memory, in bytes.
	RSS uint64
}

// Dead reports whether the process has ended, even if nobody has waited for it.
func (p Process) Dead() bool { return p.State == 'Z' || p.State == 'X' || p.State == 'x' }

// Read reads one process.
func Read(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	return parse(data)
}

// parse reads a line of /proc/PID/stat. The name, in parentheses, may itself
// have spaces and parentheses.
func parse(data []byte) (Process, error) {
	end := bytes.LastIndexByte(data, ')')
	start := bytes.IndexByte(data, ' ')
	if end < 0 || start < 0 {
		return Process{}, fmt.Errorf("/proc/PID/stat is %q: no name in it", data)
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 22 {
		return Process{}, fmt.Errorf("/proc/PID/stat is %q: too short", data)
	}
	n := func(i int) uint64 { v, _ := strconv.ParseUint(fields[i], 10, 64); return v }
	pid, err := strconv.Atoi(string(data[:start]))
	if err != nil {
		return Process{}, fmt.Errorf("/proc/PID/stat is %q: %w", data, err)
	}
	const nanos = 1e9 / ticksPerSecond
	return Process{
		PID: pid, State: fields[0][0],
		Parent: int(n(1)), Group: int(n(2)), Session: int(n(3)),
		CPU: (n(11) + n(12)) * nanos, Waited: (n(13) + n(14)) * nanos,
		Start: n(19), RSS: n(21) * uint64(os.Getpagesize()),
	}, nil
}

// All reads all processes. Those that end meanwhile, or that we may not see, are
// left out.
func All() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, err := Read(pid)
		switch {
		case err == nil:
			all = append(all, p)
		case outOfResources(err):
			// One that cannot be read must not be taken for one that has ended.
			return nil, err
		}
	}
	return all, nil
}

func outOfResources(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// Below returns those of all that descend from one for which root is true,
// without the roots themselves.
func Below(all []Process, root func(Process) bool) []Process {
	children := map[int][]Process{}
	var queue []Process
	seen := map[int]bool{}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
		if root(p) {
			queue = append(queue, p)
			seen[p.PID] = true
		}
	}
	var below []Process
	for len(queue) > 0 {
		next := children[queue[0].PID]
		queue = queue[1:]
		for _, p := range next {
			if !seen[p.PID] {
				seen[p.PID] = true
				below, queue = append(below, p), append(queue, p)
			}
		}
	}
	return below
}

// Alive reports whether the process that had this number and start still runs.
func Alive(pid int, start uint64) bool {
	p, err := Read(pid)
	return err == nil && p.Start == start && !p.Dead()
}

// Kill sends a signal to the process with this number and start, and to no
// other. That it is gone is no error.
func Kill(pid int, start uint64, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The descriptor holds on to the process, so that what is read now is of it.
	if p, err := Read(pid); err != nil || p.Start != start {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d for process %d: %w", signal, pid, err)
	}
	return nil
}

// maxEnviron is more than a kernel lets arguments and environment have: 6 MiB.
const maxEnviron = 8 << 20

// HasEnv reports whether a process was started with entry ("NAME=value") in its
// environment, as far as we may see that. A process may make its environment as large as
// it likes (PR_SET_MM), of which no more is read than it can have begun with.
func HasEnv(pid int, entry string) bool {
	file, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxEnviron))
	if err != nil {
		return false
	}
	for line := range bytes.SplitSeq(data, []byte{0}) {
		if string(line) == entry {
			return true
		}
	}
	return false
}

// Owner is the user that a process runs as.
func Owner(pid int) (uint32, error) {
	var stat unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &stat)
	return stat.Uid, err
}

// BootID names this run of the machine: numbers of processes of another mean
// nothing.
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
