package api_test

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// FuzzFrames: for all that a client may send after an upgrade, the handler ends when
// the client has gone, and nothing panics where nobody could recover.
func FuzzFrames(f *testing.F) {
	server := serveTLS(f, careless())
	ways := endpoints(f, server)
	for i, e := range ways {
		f.Add(uint8(i), e.frames)
		f.Add(uint8(i), e.frames[:len(e.frames)/2])
	}
	ended := make(chan struct{})
	handler := api.PodHandler(careless(), false)
	socket := filepath.Join(f.TempDir(), "socket") // there are not so many TCP ports
	listener, err := net.Listen("unix", socket)
	if err != nil {
		f.Fatal(err)
	}
	plain := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		handler.ServeHTTP(w, r)
	})}
	f.Cleanup(func() { plain.Close() })
	go plain.Serve(listener)
	f.Fuzz(func(t *testing.T, way uint8, frames []byte) {
		e := ways[int(way)%len(ways)]
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\n%s\r\n", e.request, e.upgrade)
		_, _ = conn.Write(frames)
		_ = conn.Close()
		within(t, ended, "end of the handler")
	})
}
