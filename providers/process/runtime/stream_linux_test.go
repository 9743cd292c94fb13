package runtime_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
)

// stream uses a URL of the streaming server as a client does.
func stream(t *testing.T, address string, options remotecommand.StreamOptions) error {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, http.MethodPost, u)
	must(t, err)
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return executor.StreamWithContext(short, options)
}

func TestExecStreams(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		response, err := n.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", "cat; echo err >&2; exit 4"}, Stdin: true, Stdout: true, Stderr: true})
		must(t, err)
		var out, errOut lockedbuffer.Buffer
		big := strings.Repeat("0123456789abcdef", 1<<16)
		err = stream(t, response.Url, remotecommand.StreamOptions{Stdin: strings.NewReader(big), Stdout: &out, Stderr: &errOut})
		if exit, ok := err.(utilexec.ExitError); !ok || exit.ExitStatus() != 4 {
			t.Errorf("%v", err)
		}
		if out.String() != big || errOut.String() != "err\n" {
			t.Errorf("%d bytes, %q", len(out.String()), errOut.String())
		}
		if err := stream(t, response.Url, remotecommand.StreamOptions{Stdin: strings.NewReader(big), Stdout: &out, Stderr: &errOut}); err == nil {
			t.Error("a URL was good for twice")
		}
	})
}

// sizes are sizes of a terminal, one after the other.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	if size, ok := <-s; ok {
		return &size
	}
	return nil
}

func TestExecInATerminal(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		script := `test -t 0 && test -t 1 && echo terminal; stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done`
		response, err := n.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"bash", "-c", script}, Tty: true, Stdin: true, Stdout: true})
		must(t, err)
		in, inW := io.Pipe()
		defer func() { _ = inW.Close() }()
		queue := sizes(make(chan remotecommand.TerminalSize, 2))
		queue <- remotecommand.TerminalSize{Width: 91, Height: 17}
		var out lockedbuffer.Buffer
		done := make(chan error)
		go func() {
			done <- stream(t, response.Url, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: queue})
		}()
		eventually(t, "the terminal", func() bool { return strings.Contains(out.String(), "ready") })
		queue <- remotecommand.TerminalSize{Width: 92, Height: 18}
		err = <-done
		close(queue)
		if exit, ok := err.(utilexec.ExitError); !ok || exit.ExitStatus() != 5 {
			t.Errorf("%v", err)
		}
		if want := "terminal\r\n17 91\r\nready\r\n18 92\r\n"; out.String() != want {
			t.Errorf("%q", out.String())
		}
	})
}

// A client that goes away ends its command.
func TestExecClientGoes(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		id := n.start(sh("exec sleep 1000"))
		marker := fmt.Sprint(1000000 + names.Add(1))
		response, err := n.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo ready; sleep " + marker}, Stdout: true})
		must(t, err)
		u, _ := url.Parse(response.Url)
		executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, http.MethodPost, u)
		must(t, err)
		short, cancel := context.WithCancel(ctx)
		var out lockedbuffer.Buffer
		done := make(chan error)
		go func() { done <- executor.StreamWithContext(short, remotecommand.StreamOptions{Stdout: &out}) }()
		eventually(t, "the command", func() bool { return strings.Contains(out.String(), "ready") })
		cancel()
		<-done
		eventually(t, "the command's end", func() bool {
			stats, err := n.PodSandboxStats(ctx, n.sandboxOf(id))
			must(t, err)
			return stats.Linux.Process.ProcessCount.Value == 1
		})
	})
}

func (n *node) sandboxOf(id string) string {
	n.t.Helper()
	list, err := n.ListContainers(ctx, &runtimeapi.ContainerFilter{Id: id})
	must(n.t, err)
	return list[0].PodSandboxId
}

func TestAttach(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		config := sh("echo started; while read line; do echo got $line; echo err $line >&2; done; echo end; exit 3")
		config.Stdin, config.StdinOnce = true, true
		id := n.start(config)
		n.waitLog(id, "started")
		response, err := n.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
		must(t, err)
		var out, errOut lockedbuffer.Buffer
		if err := stream(t, response.Url, remotecommand.StreamOptions{Stdin: strings.NewReader("one\ntwo\n"), Stdout: &out, Stderr: &errOut}); err != nil {
			t.Error(err)
		}
		if out.String() != "got one\ngot two\nend\n" || errOut.String() != "err one\nerr two\n" {
			t.Errorf("%q, %q", out.String(), errOut.String())
		}
		if s := n.ended(id); s.ExitCode != 3 {
			t.Errorf("%v", s)
		}
		if logged, _ := n.logs(id); logged != "started\ngot one\ngot two\nend\n" {
			t.Errorf("log: %q", logged)
		}
	})
}

// Several clients are attached, one after the other and at the same time; after a
// restart too.
func TestAttachTerminal(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		config := containerConfig("bash", "-c", `stty -echo; echo started; exec 3<&0
while :; do stty size <&3; sleep 0.05; done &
while read line; do echo got $line; done`)
		config.Stdin, config.Tty = true, true
		id := n.start(config)
		n.waitLog(id, "started")
		n.reopen()
		in, inW := io.Pipe()
		var outs [2]lockedbuffer.Buffer
		queue := sizes(make(chan remotecommand.TerminalSize, 1))
		queue <- remotecommand.TerminalSize{Width: 93, Height: 19}
		done := make(chan error)
		for i := range outs {
			response, err := n.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: i == 0, Stdout: true, Tty: true})
			must(t, err)
			options := remotecommand.StreamOptions{Stdout: &outs[i], Tty: true}
			if i == 0 {
				options.Stdin, options.TerminalSizeQueue = in, queue
			}
			go func() { done <- stream(t, response.Url, options) }()
		}
		for i := range outs { // both have to be attached before the only answer is written
			eventually(t, "the size", func() bool { return strings.Contains(outs[i].String(), "19 93") })
		}
		_, err := io.WriteString(inW, "hello\n")
		must(t, err)
		for i := range outs {
			eventually(t, "an answer", func() bool { return strings.Contains(outs[i].String(), "got hello") })
		}
		must(t, n.StopContainer(ctx, id, 0))
		for range outs {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		close(queue)
		_ = inW.Close()
	})
}

// Ports of a pod are those on which its own processes listen.
func TestPortForward(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		box, boxConfig := n.sandbox()
		id, err := n.CreateContainer(ctx, box, n.helper("listen"), boxConfig)
		must(t, err)
		must(t, n.StartContainer(ctx, id))
		var port int
		_, err = fmt.Sscan(n.waitLog(id, "\n"), &port)
		must(t, err)
		for _, path := range []string{"/a", "/b"} {
			if body, err := n.get(box, port, path); err != nil || body != "you asked for "+path {
				t.Errorf("%q, %v", body, err)
			}
		}
		// Those of others are not.
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") })}
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
		if body, err := n.get(box, listener.Addr().(*net.TCPAddr).Port, "/"); err == nil {
			t.Errorf("a port of the machine answers %q", body)
		}
		other, _ := n.sandbox()
		if body, err := n.get(other, port, "/"); err == nil {
			t.Errorf("a port of another pod answers %q", body)
		}
	})
}

// get asks a server in a pod for a path, by port-forward.
func (n *node) get(box string, port int, path string) (string, error) {
	n.t.Helper()
	response, err := n.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: box, Port: []int32{int32(port)}})
	must(n.t, err)
	u, err := url.Parse(response.Url)
	must(n.t, err)
	roundTripper, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: u.Host})
	must(n.t, err)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, u), []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	must(n.t, err)
	done := make(chan error)
	go func() { done <- forwarder.ForwardPorts() }()
	<-ready
	defer func() { close(stop); <-done }()
	ports, err := forwarder.GetPorts()
	must(n.t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", ports[0].Local, path))
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}
