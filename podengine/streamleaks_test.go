package podengine

import (
	"errors"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// No goroutines of a session that has begun outlive it, on the way to the runtime
// neither, regardless of what its client sends, whether the command reads its input or not, and however it ends.
func TestNoGoroutineOutlivesASession(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	run := func(_ string, command []string, in io.Reader, out, _ io.Writer, _ bool, _ <-chan remotecommandserver.TerminalSize) error {
		_, _ = io.WriteString(out, "begun\n")
		switch {
		case len(command) == 0, command[0] == "cat":
			_, err := io.Copy(out, in)
			return err
		case command[0] == "fail":
			return errors.New("no such command")
		}
		return nil // and its input is not read
	}
	withStreams(t, &fakeStreams{run: run}, func(r *rig) {
		mux := http.NewServeMux()
		api.AttachPodRoutes(api.PodHandlerConfig{RunInContainer: r.RunInContainer, AttachToContainer: r.AttachToContainer}, mux, false)
		server := httptest.NewServer(mux)
		defer server.Close()
		before := goleak.IgnoreCurrent()
		paths := []string{
			"/exec/ns/p/a?command=cat&input=1&output=1", "/exec/ns/p/a?command=true&input=1&output=1",
			"/exec/ns/p/a?command=fail&input=1&output=1&tty=1", "/attach/ns/p/a?input=1&output=1",
		}
		protocols := []string{"channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io", "base64.channel.k8s.io"}
		for i := range 100 {
			dialer := websocket.Dialer{Subprotocols: []string{protocols[i%len(protocols)]}}
			conn, resp, err := dialer.DialContext(r.ctx, "ws"+strings.TrimPrefix(server.URL, "http")+paths[random.Intn(len(paths))], nil)
			if err != nil {
				t.Fatal(err, resp)
			}
			for begun := false; err == nil && !begun; {
				var message []byte
				_, message, err = conn.ReadMessage()
				begun = len(message) > 1
			}
			for range random.Intn(10) {
				message := make([]byte, 2+random.Intn(5000))
				_, _ = random.Read(message)
				message[0] = []byte{0, 0, 0, 4, 255, '0', '4', 1, 9}[random.Intn(9)]
				message[1] = byte(random.Intn(6))
				_ = conn.WriteMessage([]int{websocket.BinaryMessage, websocket.TextMessage}[random.Intn(2)], message)
			}
			if random.Intn(2) == 0 {
				_ = conn.WriteMessage(websocket.CloseMessage, nil)
			}
			_ = conn.Close()
		}
		// A session that ends before it has begun leaves a goroutine of client-go, which
		// waits 30 s for the reply to a stream.
		var err error
		for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
			if err = goleak.Find(before); err == nil {
				return
			}
		}
		t.Error(err)
	})
}
