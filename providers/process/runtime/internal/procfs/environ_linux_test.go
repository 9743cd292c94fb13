package procfs

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if size := os.Getenv("TEST_HUGE_ENVIRON"); size != "" {
		fmt.Println(growEnviron(size))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// growEnviron makes the kernel take memory that has no pages for the environment of this
// process, as any process may.
func growEnviron(size string) error {
	bytes, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	field := func(i int) uint64 { // as proc(5) counts them
		n, _ := strconv.ParseUint(fields[i-3], 10, 64)
		return n
	}
	end, _, _ := unix.Syscall(unix.SYS_BRK, 0, 0, 0)
	begin := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	layout := struct { // prctl_mm_map
		memory         [12]uint64
		auxvSize, exec uint32
	}{[12]uint64{field(26), field(27), field(45), field(46), field(47), uint64(end), field(28), field(48), field(49), begin, begin + uint64(bytes), 0}, 0, 1<<32 - 1}
	return unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(&layout)), unsafe.Sizeof(layout), 0)
}

// The environment of a process is read as far as a kernel lets one be started with, however
// large the process has made it since.
func TestHasEnvOfAHugeEnvironment(t *testing.T) {
	for size, want := range map[string]bool{"": true, "1000000000": false} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"TEST_MARKER=x", "TEST_HUGE_ENVIRON=" + size}
		if size == "" {
			cmd = exec.Command("/bin/cat")
			cmd.Env = []string{"TEST_MARKER=x"}
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if size == "" {
			_, _ = io.WriteString(in, "<nil>\n")
		}
		grown := ""
		if _, err := fmt.Fscanln(out, &grown); err != nil || grown != "<nil>" {
			t.Errorf("its environment cannot be made large: %s, %v", grown, err)
		}
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		if has := HasEnv(cmd.Process.Pid, "TEST_MARKER=x"); has != want {
			t.Errorf("with %q bytes it has the entry: %t", size, has)
		}
		goruntime.ReadMemStats(&after)
		if read := after.TotalAlloc - before.TotalAlloc; read > 64<<20 {
			t.Errorf("with %q bytes it takes %d bytes to read it", size, read)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
