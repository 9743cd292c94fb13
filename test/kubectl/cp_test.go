//go:build integration

package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const copiedBytes = 100 << 20

func testCopy(t *testing.T, u user) {
	dir := t.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	if err := os.WriteFile(there, randomBytes(copiedBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	want := sha256OfFile(t, there)
	u.run(t, "cp", there, "pod:copied", "-c", "main")
	if got := u.run(t, "exec", "pod", "-c", "main", "--", "sha256sum", "copied"); !strings.HasPrefix(got, want) {
		t.Errorf("in the pod the checksum is %q, want %s", got, want)
	}
	u.run(t, "cp", "pod:copied", back, "-c", "main")
	if got := sha256OfFile(t, back); got != want {
		t.Errorf("of the copy that came back the checksum is %s, want %s", got, want)
	}
	u.run(t, "exec", "pod", "-c", "main", "--", "rm", "copied")
}

// testCopyDirectory copies a tree there and back.
func testCopyDirectory(t *testing.T, u user) {
	dir := t.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	want := map[string]string{"a": "1", "b c": "", "sub/d": strings.Repeat("2", 100_000), "sub/sub/ä": "3"}
	for name, content := range want {
		path := filepath.Join(there, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u.run(t, "cp", there, "pod:tree", "-c", "main")
	u.run(t, "cp", "pod:tree", back, "-c", "main")
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(back, name)); err != nil || string(got) != content {
			t.Errorf("%s came back with %d bytes, %v; want %d", name, len(got), err, len(content))
		}
	}
}
