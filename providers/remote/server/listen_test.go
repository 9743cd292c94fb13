package server_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/server"
)

// The socket of a process that was killed is replaced; one that is in use, and any other file,
// is not.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "provider.sock")
	killed, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Listen(path); err == nil || !strings.Contains(err.Error(), "another process answers there") {
		t.Errorf("got %v", err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = killed.Close()
	again, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Listen(path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("got %v", err)
	}
}
