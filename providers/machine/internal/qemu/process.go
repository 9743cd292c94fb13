package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stat is what is used of /proc/PID/stat.
type stat struct {
	state byte
	start uint64 // in ticks since the host has started
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name of the program, in parentheses, may have any bytes.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("the state of process %d cannot be read", pid)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return stat{fields[0][0], start}, err
}

// runs reports whether the process of a machine has not ended: that another one has its number by
// now, or that the host has started again, does not deceive it.
func (h *Host) runs(r *record) bool {
	if r.PID <= 0 || r.Boot != h.boot {
		return false
	}
	s, err := readStat(r.PID)
	if err != nil || s.start != r.Start {
		return false
	}
	if s.state == 'Z' || s.state == 'X' {
		// A process that this one has started stays until it is waited for, which is of no avail
		// while some of its threads are left. It fails for the others.
		waited, err := unix.Wait4(r.PID, nil, unix.WNOHANG, nil)
		return err == nil && waited == 0
	}
	return true
}

// kill ends the process of a machine, and waits for that.
func (h *Host) kill(ctx context.Context, r *record) error {
	if r.PID <= 0 {
		return nil
	}
	process, err := os.FindProcess(r.PID) // holds on to the process, also once another has its number
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	for h.runs(r) {
		if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("process %d of machine %s cannot be ended: %w", r.PID, r.Name, err)
		}
		select {
		case <-time.After(killPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// gated is a process that has not begun yet.
type gated struct {
	pid   int
	start uint64
	gate  *os.File
}

// gate is a shell that becomes the program once a line comes from the file 3. If that is closed
// instead, as it is when the process ends that has started it, it ends.
const gate = `read -r line <&3 || exit 1; exec 3<&-; ulimit -f "$1"; shift; exec "$@"`

// startGated starts a program, in a session of its own, that waits for release. Its files are 4 and
// so on. Its output is appended to a file, and it writes no file that is longer than limit, in blocks
// of 512 bytes.
func startGated(argv []string, output string, limit int64, files ...*os.File) (*gated, error) {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	command := exec.Command("/bin/sh", append([]string{"-c", gate, "gate", strconv.FormatInt(limit, 10)}, argv...)...)
	command.Stdout, command.Stderr, command.Dir = out, out, "/"
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	command.ExtraFiles = append([]*os.File{reader}, files...)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	pid := command.Process.Pid // which Release forgets
	s, err := readStat(pid)    // it cannot have ended: it waits
	if err != nil {
		return nil, errors.Join(err, writer.Close(), command.Wait())
	}
	if err := command.Process.Release(); err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	return &gated{pid, s.start, writer}, nil
}

// release lets the program begin, or end before it has.
func (g *gated) release(begin bool) error {
	var err error
	if begin {
		_, err = g.gate.WriteString("begin\n")
	}
	return errors.Join(err, g.gate.Close())
}

// inMemory returns a file that has no name, which nobody else can open.
func inMemory(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("user-data", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "user-data")
	if _, err := file.WriteString(text); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
