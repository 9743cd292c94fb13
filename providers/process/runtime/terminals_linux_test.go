package runtime_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// Each container has an instance of the file system of terminals to itself, in which
// its own terminal, those of exec and those that it makes are.
func TestTerminalsAreOfTheirContainerAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.Isolation, c.Users = runtime.IsolationNamespaces, []string{"0"} })
	master, slave, err := pty.Open() // of the machine
	must(t, err)
	defer func() { _, _ = master.Close(), slave.Close() }()
	ofMachine := filepath.Base(slave.Name())
	const show = "tty; echo $(ls /dev/pts); echo hello > $(tty)"
	box, _ := n.sandbox()
	config := sh(show + "; trap exit TERM; while :; do sleep 0.05; done")
	config.Tty = true
	first := n.in(box, config)
	if got := n.waitLog(first, "hello"); got != "/dev/pts/0\r\n0 ptmx\r\nhello\r\n" {
		t.Errorf("a container with a terminal: %q", got)
	}
	for range 2 {
		if got := n.inTerminal(first, show); got != "/dev/pts/1\r\n0 1 ptmx\r\nhello\r\n" {
			t.Errorf("a command with a terminal: %q", got)
		}
		n.reopen()
	}
	// Without any of its own, as root too.
	for _, user := range []*runtimeapi.Int64Value{nil, number(0)} {
		config := secured(&runtimeapi.LinuxContainerSecurityContext{RunAsUser: user})
		config.Command = []string{"sh", "-c", "echo $(ls /dev/pts); for i in 0 1 " + ofMachine + "; do echo evil > /dev/pts/$i; done"}
		if got := n.output(box, config); !strings.HasPrefix(got, "ptmx\n") || strings.Count(got, "evil") > 0 {
			t.Errorf("another container of the pod: %q", got)
		}
	}
	if got := n.output(box, n.helper("terminal")); got != "/dev/pts/0\n" {
		t.Errorf("a container that makes a terminal: %q", got)
	}
	if got, _ := n.logs(first); strings.Contains(got, "evil") {
		t.Errorf("the first container's terminal has %q", got)
	}
}

// A pod that puts something else in the place of its devices gets no terminal, and
// nothing of the machine's.
func TestHostileTerminalsAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.Isolation, c.Users = runtime.IsolationNamespaces, []string{"0"} })
	config := secured(&runtimeapi.LinuxContainerSecurityContext{RunAsUser: number(0)})
	config.Command = []string{"sh", "-c", "rm -rf /dev/ptmx /dev/pts /dev/tty; ln -s /etc/passwd /dev/ptmx; mkfifo /dev/tty; echo ready; exec sleep 1000"}
	id := n.start(config)
	n.waitLog(id, "ready")
	if got := n.inTerminal(id, "tty; stty size"); !strings.HasPrefix(got, "/dev/pts/0\r\n") {
		t.Errorf("%q", got)
	}
}

// inTerminal runs a script in a terminal of a container, and returns what it shows.
func (n *node) inTerminal(id, script string) string {
	n.t.Helper()
	response, err := n.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", script}, Tty: true, Stdin: true, Stdout: true})
	must(n.t, err)
	in, inW := io.Pipe()
	defer func() { _ = inW.Close() }()
	var out lockedbuffer.Buffer
	if err := stream(n.t, response.Url, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true}); err != nil {
		n.t.Errorf("%q in a terminal: %v", script, err)
	}
	return out.String()
}
