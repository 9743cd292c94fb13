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

// A record has its place before it is known; one that is larger is whole, too.
func TestReservedRecords(t *testing.T) {
	for _, message := range []string{"", strings.Repeat("x", 10*reservedSize)} {
		dir := t.TempDir()
		if err := writeReserved(dir, ExitFile, Exit{}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without a place: %v", err)
		}
		if err := reserve(dir, ExitFile); err != nil || HasRecord(dir, ExitFile) {
			t.Fatalf("%v, or there is a record", err)
		}
		if err := writeReserved(dir, ExitFile, Exit{Code: 7, Message: message}); err != nil {
			t.Fatal(err)
		}
		var got Exit
		if err := ReadRecord(dir, ExitFile, &got); err != nil || got.Code != 7 || got.Message != message {
			t.Errorf("%+v, %v", got, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
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
