// Package gauge reads what a process has used and asked of the API server.
package gauge

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/PID/stat: USER_HZ is 100 on all of Linux' platforms
// that Go supports.
const tick = 10 * time.Millisecond

// CPU returns the processor time that a process has used, in user and kernel
// mode, to 10 ms, with that of the programs that it has run to their end.
func CPU(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The command in parentheses may hold anything; what follows it is plain.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("%s: unknown format %q", path, data)
	}
	var sum time.Duration
	for _, field := range fields[11:15] { // utime and stime, its own and of children that it has waited for
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// Memory is what a process has in memory, in bytes. Anonymous is the part of Now
// that is no file's: without the pages of its binary.
type Memory struct{ Now, Anonymous, Peak int64 }

// RSS reads the memory of a process.
func RSS(pid int) (Memory, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		for key, field := range map[string]*int64{"VmRSS:": &m.Now, "RssAnon:": &m.Anonymous, "VmHWM:": &m.Peak} {
			if text, ok := strings.CutPrefix(lines.Text(), key); ok {
				kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
				if err != nil {
					return Memory{}, fmt.Errorf("%s: %w", path, err)
				}
				*field = kib << 10
			}
		}
	}
	return m, lines.Err()
}
