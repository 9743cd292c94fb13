package api_test

import (
	"context"
	"io"
	"math/rand"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// No session's goroutines outlive it, regardless of what its client sends, whether the provider
// reads its input or not, and however it ends.
func TestNoGoroutineOutlivesASession(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	run := func(_ context.Context, a api.AttachIO) error {
		go io.Copy(io.Discard, a.Stdin()) // as a provider that does not wait for it
		if a.TTY() {
			return nil
		}
		_, err := io.Copy(a.Stdout(), a.Stdin())
		return err
	}
	check := noLeaks(t)
	t.Run("", func(t *testing.T) {
		server := serveTLS(t, api.PodHandlerConfig{
			RunInContainer:    func(ctx context.Context, _, _, _ string, _ []string, a api.AttachIO) error { return run(ctx, a) },
			AttachToContainer: func(ctx context.Context, _, _, _ string, a api.AttachIO) error { return run(ctx, a) },
		})
		protocols := []string{"", "channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io", "base64.channel.k8s.io"}
		paths := []string{"/exec/ns/p/c?command=x&input=1&output=1", "/attach/ns/p/c?input=1&output=1&tty=1"}
		for i := range 200 {
			conn, _, err := dialWebSocket(t, server, paths[i%2], protocols[i%len(protocols)])
			if err != nil {
				t.Fatal(err)
			}
			for range random.Intn(10) {
				message := make([]byte, 2+random.Intn(5000))
				_, _ = random.Read(message)
				message[0] = []byte{0, 0, 0, 4, 255, '0', '4', 1, 9}[random.Intn(9)]
				message[1] = byte(random.Intn(6))
				if random.Intn(4) == 0 {
					message = message[:2]
				}
				_ = conn.WriteMessage([]int{websocket.BinaryMessage, websocket.TextMessage}[random.Intn(2)], message)
			}
			if random.Intn(2) == 0 {
				_ = conn.WriteMessage(websocket.CloseMessage, nil)
			}
			conn.Close()
		}
	})
	check()
}
