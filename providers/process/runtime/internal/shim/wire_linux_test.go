package shim

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Long requests arrive whole, with their files, for any path of the directory.
func TestConn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &server{dir: dir}
	if err := s.listen(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.listener.Close() }()
	if info, err := os.Stat(filepath.Join(dir, SocketFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	client, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	accepted, err := s.listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	conn := &Conn{unix: accepted}
	defer func() { _ = conn.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(r, w)
	sent := make(chan error)
	long := strings.Repeat("x", 3<<20)
	go func() {
		err := client.Send(Request{Op: OpExec, Command: &Command{Path: long}}, w)
		if err == nil {
			err = client.Send(Request{Op: OpKill})
		}
		sent <- err
	}()
	var first, second Request
	if err := conn.Receive(&first); err != nil || first.Command.Path != long {
		t.Fatal(err)
	}
	if err := conn.Receive(&second); err != nil || second.Op != OpKill {
		t.Errorf("%+v, %v", second, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	files := conn.TakeFiles()
	if len(files) != 1 {
		t.Fatal(files)
	}
	if _, err := io.WriteString(files[0], "hello"); err != nil {
		t.Error(err)
	}
	closeAll(append(files, w)...)
	if data, err := io.ReadAll(r); string(data) != "hello" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	_ = client.Close()
	if err := conn.Receive(&first); err == nil {
		t.Error("something came from a connection that was closed")
	}
}
