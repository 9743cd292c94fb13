package daemon_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/daemon"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		signal os.Signal
		says   string // of the error; none if empty
	}{
		"it ends well":              {"trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done", syscall.SIGTERM, ""},
		"it ends with an exit code": {"trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done", syscall.SIGTERM, "exit status 3"},
		"it is killed":              {"trap '' TERM; echo up; exec sleep 1000", os.Kill, ""},
		"it ended before":           {"echo up; exit 3", nil, "had ended by itself: exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			up, output := io.Pipe()
			log := &lockedbuffer.Buffer{}
			p, err := daemon.Launch(exec.Command("sh", "-c", test.script), io.MultiWriter(log, output))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := up.Read(make([]byte, 3)); err != nil { // the trap is set
				t.Fatal(err)
			}
			if test.signal == nil {
				<-p.Done()
			}
			err = p.Stop(test.signal)
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("Stop returned %v, want %q", err, test.says)
			}
			if log.String() != "up\n" {
				t.Errorf("the log is %q", log)
			}
		})
	}
}
