package server_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// Nobody listens over TCP without certificates of both sides.
func TestListenAt(t *testing.T) {
	socket := "unix://" + filepath.Join(t.TempDir(), "provider.sock")
	for name, test := range map[string]struct {
		address string
		files   server.TLS
		want    string
	}{
		"no certificates":           {"127.0.0.1:0", server.TLS{}, "are required"},
		"nobody shows certificates": {"127.0.0.1:0", server.TLS{CertFile: "a", KeyFile: "b"}, "are required"},
		"a socket with some":        {socket, server.TLS{CertFile: "a"}, "has no certificates"},
		"files that are not there":  {"127.0.0.1:0", server.TLS{CertFile: "/no/a", KeyFile: "/no/b", ClientCAFile: "/no/c"}, "/no/a"},
	} {
		if listener, err := server.ListenAt(t.Context(), test.address, test.files); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v, want %q", name, listener, err, test.want)
		}
	}
	listener, err := server.ListenAt(t.Context(), socket, server.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}
