package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	var got Started
	if err := ReadRecord(dir, StartedFile, &got); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := WriteRecord(dir, StartedFile, Started{PID: 7}); err != nil {
		t.Fatal(err)
	}
	if err := ReadRecord(dir, StartedFile, &got); err != nil || got.PID != 7 || !HasRecord(dir, StartedFile) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ExitFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadRecord(dir, ExitFile, &Exit{}); err == nil || !strings.Contains(err.Error(), ExitFile) {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !errors.Is(err, ErrRuns) {
		t.Error(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
