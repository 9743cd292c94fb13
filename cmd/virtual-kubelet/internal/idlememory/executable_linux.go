package idlememory

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropExecutable takes the pages of the executable out of this process's memory. Those that nobody uses are the
// first that the kernel takes when it is short of memory.
func dropExecutable() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for _, m := range unchanged(file, path) {
		_ = m.advise(unix.MADV_COLD) // not in kernels before 5.4
		if err := m.advise(unix.MADV_DONTNEED); err != nil {
			return fmt.Errorf("drop pages of %s: %w", path, err)
		}
	}
	return nil
}

// mapping is a part of this process's memory.
type mapping struct{ begin, end uintptr }

func (m mapping) advise(advice uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, advice); errno != 0 {
		return errno
	}
	return nil
}

// unchanged returns the mappings of the file at path, of all in smaps (see proc(5)), that have pages in memory and are
// the file's to the last byte. A page that was written to is the process's own, and would be lost: such as
// addresses that a loader has put in, and breakpoints of a debugger. While it is swapped out it does not count as
// anonymous. Where nothing is in memory there is nothing to gain, and the other sizes may be wrong: QEMU, where
// it emulates another processor, has zeros for all.
func unchanged(smaps io.Reader, path string) (found []mapping) {
	var m mapping
	var of bool                  // the file
	sizes := map[string]string{} // that came with it
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		line := lines.Text()
		var next mapping
		var access string
		if n, _ := fmt.Sscanf(line, "%x-%x %s ", &next.begin, &next.end, &access); n == 3 {
			m, of = next, strings.HasPrefix(access, "r") && access[1] != 'w' && strings.HasSuffix(line, " "+path)
			clear(sizes)
			continue
		}
		name, size, _ := strings.Cut(line, ":")
		sizes[name] = strings.TrimSpace(size)
		// Of these the kernel writes Swap last.
		if of && name == "Swap" && sizes["Rss"] != "0 kB" && sizes["Anonymous"] == "0 kB" && sizes["Swap"] == "0 kB" {
			found = append(found, m)
		}
	}
	return found
}
