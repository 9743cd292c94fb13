package listen_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listen"
)

// The socket of a process that was killed is replaced; one that is in use, and any other file,
// is not.
func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "provider.sock")
	killed, err := listen.Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(path, says string) {
		t.Helper()
		if _, err := listen.Unix(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	refused(path, "another process answers there")
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	killed.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = killed.Close()
	refused(link, "no socket")
	again, err := listen.Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	refused(link, "no socket") // it leads nowhere
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(path, "no socket")
	refused("/tmp/"+strings.Repeat("a", 103), "107 bytes at most")
	refused(filepath.Join(path+".none", "provider.sock"), "no such file")
}

// Nobody else can connect, with any umask.
func TestUnixIsForItsUser(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "provider.sock")
	listener, err := listen.Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}
