package machine

import (
	"os"
	"path/filepath"
	"testing"
)

// An authority whose certificate cannot be written has no key either: with the key alone the node would
// not begin any more.
func TestAuthorityThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, authorityFile)
	if err := os.MkdirAll(filepath.Join(blocked, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := openAuthority(dir); err == nil {
		t.Fatal("there is an authority")
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	if _, err := openAuthority(dir); err != nil {
		t.Errorf("the next start fails, too: %v", err)
	}
}
