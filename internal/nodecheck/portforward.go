package nodecheck

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstream"
)

var portForwardChecks = []Check{
	{Name: "port-forward", Title: "bytes go both ways between a client and a port of the pod", Needs: []Capability{PortForward}, run: checkPortForward},
}

// echoServer is a script that sends back what comes to a port, with what there
// is: netcat, or Perl.
const echoServer = `trap 'exit 0' TERM
if command -v nc >/dev/null; then
  pipe=${TMPDIR:-/tmp}/nodecheck-$PORT; rm -f "$pipe"; mkfifo "$pipe" || exit 1
  while :; do nc -l -p "$PORT" <"$pipe" | cat >"$pipe"; done & wait
elif command -v perl >/dev/null; then
  perl -MIO::Socket -e '$s = IO::Socket::INET->new(LocalPort => $ENV{PORT}, Listen => 5, ReuseAddr => 1) or die $!;
    while ($c = $s->accept) { while (sysread $c, $b, 4096) { syswrite $c, $b } close $c }' & wait
else
  echo there is neither nc nor perl; exit 1
fi`

// checkPortForward takes a port by chance, since pods may share the network of
// the machine.
func checkPortForward(ctx context.Context, s *Scope) error {
	port := 20000 + rand.IntN(10000)
	pod := s.Pod(s.container("main", echoServer))
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PORT", Value: strconv.Itoa(port)}}
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	return s.Poll(ctx, func(ctx context.Context) error { return s.echo(ctx, pod, port) }) // it does not listen at once
}

// echo sends something to a port of the pod, and reads it back.
func (n *Node) echo(ctx context.Context, pod *corev1.Pod, port int) error {
	conn, err := n.dialPod(pod)
	if err != nil {
		return err
	}
	hangUp := func() { _ = conn.Close() }
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	data, failure, err := podstream.OpenPort(conn, port)
	if err != nil {
		return fmt.Errorf("open port %d: %w", port, err)
	}
	const sent = "some bytes that are to come back\n"
	if _, err := io.WriteString(data, sent); err != nil {
		return fmt.Errorf("send to port %d: %w", port, err)
	}
	got := make([]byte, len(sent))
	count, err := io.ReadFull(data, got)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: of %q came back %q", context.Cause(ctx), sent, got[:count])
	case err != nil:
		hangUp()
		why, _ := io.ReadAll(failure) // ends with the connection
		return fmt.Errorf("of %q came back %q: %w: %s", sent, got[:count], err, why)
	case string(got) != sent:
		return final{fmt.Errorf("of %q came back %q", sent, got)}
	}
	return nil
}

// dialPod opens a connection for ports of the pod, as kubectl does: by WebSocket,
// and where that is refused by SPDY.
func (n *Node) dialPod(pod *corev1.Pod) (httpstream.Connection, error) {
	config, recorder, err := n.recording()
	if err != nil {
		return nil, final{err}
	}
	address := n.podURL(pod, "portforward", nil)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	secondary := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	primary, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil {
		return nil, err
	}
	conn, _, err := portforward.NewFallbackDialerForStreaming(primary, secondary, shouldFallBack).Dial(portforward.PortForwardProtocolV1Name)
	return conn, recorder.refused(err)
}
