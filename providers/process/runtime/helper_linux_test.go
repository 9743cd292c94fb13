package runtime_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	goruntime "runtime"
	"strconv"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// helper is what this program does in a container: what the machine has no program
// for.
func helper(args []string) int {
	switch args[0] {
	case "listen":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
		fmt.Println(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.URL.Path) })))
	case "shm":
		key, _ := strconv.Atoi(args[1])
		_, err := unix.SysvShmGet(key, 4096, 0)
		fmt.Println(err)
	case "shm-make":
		key, _ := strconv.Atoi(args[1])
		if _, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("made")
	case "terminal":
		_, slave, err := pty.Open()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(slave.Name())
	case "terminals":
		var open []*os.File
		for {
			master, slave, err := pty.Open()
			if err != nil {
				break
			}
			open = append(open, master)
			_ = slave.Close()
		}
		fmt.Println(len(open))
	case "attack-processes":
		for _, arg := range args[1:] {
			pid, _ := strconv.Atoi(arg)
			attackProcess(pid)
		}
	case "listen-unix":
		for _, name := range args[1:] {
			if _, err := net.Listen("unix", name); err != nil {
				fmt.Println(err)
				return 1
			}
		}
		fmt.Println("listening")
		time.Sleep(time.Hour) // not forever: a program of which nothing can go on is ended
	case "dial-unix":
		for _, name := range args[1:] {
			if conn, err := net.Dial("unix", name); err == nil {
				fmt.Println("connected to", name)
				_ = conn.Close()
			}
		}
	case "keyring":
		id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(id)
	}
	return 0
}

// attackProcess tries what one process can do to another, and prints what works.
func attackProcess(pid int) {
	goruntime.LockOSThread() // what traces is a thread
	defer goruntime.UnlockOSThread()
	if err := unix.PtraceAttach(pid); err == nil {
		fmt.Println("traces", pid)
		_ = unix.PtraceDetach(pid)
	}
	if err := unix.PtraceSeize(pid); err == nil {
		fmt.Println("seizes", pid)
	}
	for _, name := range []string{"environ", "mem", "maps", "root/", "cwd/", "fd/0", "ns/ipc"} {
		flags := os.O_RDONLY
		if name == "mem" {
			flags = os.O_RDWR
		}
		if f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, name), flags, 0); err == nil {
			fmt.Println("opens", f.Name())
			_ = f.Close()
		}
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		for n := range 10 {
			if file, err := unix.PidfdGetfd(fd, n, 0); err == nil {
				fmt.Println("takes a file of", pid)
				_ = unix.Close(file)
			}
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0); err == nil {
			fmt.Println("signals", pid)
		}
		_ = unix.Close(fd)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err == nil {
		fmt.Println("signals", pid)
	}
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err == nil {
		fmt.Println("reads the limits of", pid)
	}
}
