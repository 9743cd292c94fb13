package runtime_test

import (
	"fmt"
	"net"
	"net/http"
	"strconv"

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
