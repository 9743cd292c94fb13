//go:build linux

package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processInfo is what /proc says of a process.
type processInfo struct {
	pid, parent int
	args        []string
}

// processes lists all processes of the machine. One may be gone by the time it
// is read.
func processes() []processInfo {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	var all []processInfo
	for _, path := range paths {
		dir := filepath.Dir(path)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// The name, in brackets, may have spaces and brackets itself.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		all = append(all, processInfo{
			pid:    pid,
			parent: parent,
			args:   strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00"),
		})
	}
	return all
}

// shims returns the processes that hold the containers of the containerd at the
// socket: they outlive it on purpose.
func shims(all []processInfo, socket string) []processInfo {
	return matching(all, "containerd-shim-runc-v2", "-address", socket)
}

// matching returns the processes of a program with two arguments in a row.
func matching(all []processInfo, program, flag, value string) []processInfo {
	var found []processInfo
	for _, p := range all {
		at := slices.Index(p.args, flag)
		if filepath.Base(p.args[0]) == program && at > 0 && at+1 < len(p.args) && p.args[at+1] == value {
			found = append(found, p)
		}
	}
	return found
}

// descendants returns the processes below the given ones.
func descendants(all, roots []processInfo) []processInfo {
	below := map[int]bool{}
	for _, p := range roots {
		below[p.pid] = true
	}
	var found []processInfo
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if below[p.parent] && !below[p.pid] {
				below[p.pid] = true
				found = append(found, p)
				grown = true
			}
		}
	}
	return found
}

// killTimeout is far more than the kernel needs for a process that can be killed.
const killTimeout = 20 * time.Second

// killAll kills containerd, then what runs in containers, then the shims, and
// returns when all are gone. Shims come last: a shim adopts a
// container's processes when their parents die, and nobody does when the shim dies.
func killAll(config, socket string) error {
	steps := []func([]processInfo) []processInfo{
		func(all []processInfo) []processInfo { return matching(all, "containerd", "--config", config) },
		func(all []processInfo) []processInfo { return descendants(all, shims(all, socket)) },
		func(all []processInfo) []processInfo { return shims(all, socket) },
	}
	deadline := time.Now().Add(killTimeout)
	for _, find := range steps {
		for {
			found := find(processes())
			if len(found) == 0 {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("kill %s (process %d): it is still there after %v", found[0].args[0], found[0].pid, killTimeout)
			}
			for _, p := range found {
				_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may be gone
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}
